//! The dashboard's page, and the one of the API's description (`/api`): files that are part of the program, and load nothing from elsewhere.

pub(super) mod board;

use super::answer::Node;
use axum::Router;
use axum::http::header;
use axum::routing::get;

/// A file of the page: its path, type and contents.
type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All of them.
const FILES: [File; 14] = [
    ("/", HTML, include_str!("index.html")),
    ("/dashboard/icon.svg", ICON, include_str!("icon.svg")),
    ("/dashboard/style.css", CSS, include_str!("style.css")),
    ("/dashboard/main.js", SCRIPT, include_str!("main.js")),
    ("/dashboard/api.js", SCRIPT, include_str!("api.js")),
    ("/dashboard/text.js", SCRIPT, include_str!("text.js")),
    ("/dashboard/table.js", SCRIPT, include_str!("table.js")),
    ("/dashboard/charts.js", SCRIPT, include_str!("charts.js")),
    ("/dashboard/overview.js", SCRIPT, include_str!("overview.js")),
    ("/dashboard/device.js", SCRIPT, include_str!("device.js")),
    ("/dashboard/tenant.js", SCRIPT, include_str!("tenant.js")),
    ("/api", HTML, include_str!("viewer.html")),
    ("/dashboard/viewer.css", CSS, include_str!("viewer.css")),
    ("/dashboard/viewer.js", SCRIPT, include_str!("viewer.js")),
];

/// Routes to the files. They are for whoever asks: what they show is asked for with a token.
pub(super) fn files() -> Router<Node> {
    FILES.into_iter().fold(Router::new(), |routes, (path, kind, text)| {
        routes.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the content security policy would keep the page from: text that runs, and files from elsewhere.
    #[test]
    fn the_page_loads_its_own_files_and_runs_no_text() {
        for (path, _, text) in FILES {
            for wrong in ["http://", "https://", "innerHTML", "eval(", "style=\"", " onclick=", "new Function"] {
                // The namespace of SVG is a name.
                let text = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(wrong), "{path} has {wrong}");
            }
        }
        for (at, names) in [
            ("/", &["/dashboard/style.css", "/dashboard/main.js"][..]),
            ("/api", &["/dashboard/style.css", "/dashboard/viewer.css", "/dashboard/viewer.js"]),
        ] {
            let page = FILES.iter().find(|(path, ..)| *path == at).expect("the page is there").2;
            for name in names {
                assert!(page.contains(name) && FILES.iter().any(|(path, ..)| path == name), "{name}");
            }
        }
    }

    #[test]
    fn every_module_that_is_imported_is_there() {
        for (path, _, text) in FILES {
            for rest in text.split("from \"./").skip(1) {
                let name = rest.split('"').next().unwrap_or_default();
                assert!(FILES.iter().any(|(known, ..)| *known == format!("/dashboard/{name}")), "{path}: {name}");
            }
        }
    }
}
