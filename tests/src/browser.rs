//! A headless Chromium, driven by the DevTools protocol over a pair of pipes (`--remote-debugging-pipe`: JSON, each message ended by a zero byte).

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Context, Env, Outcome, ensure};
use crate::process::{Process, run, until};

/// How long the browser may take for an answer: other tests run beside it.
const LIMIT: Duration = Duration::from_secs(60);
/// What installs it.
const INSTALL: &str =
    "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium";

/// A browser with one page.
pub struct Browser {
    _process: Process,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Errors on its console, refusals by the content security policy among them.
    pub complaints: Vec<String>,
}

/// Whether Chromium is here, or could be installed; else the test is skipped.
pub fn is_there(env: &Env) -> Result<bool, String> {
    let bash = |script: &str| run(&env.folder()?, Path::new("/bin/bash"), ["-c", script], Duration::from_secs(300));
    let installed = env.shared("chromium", |folder| {
        std::fs::create_dir_all(folder).context(|| folder.display().to_string())?;
        let found = bash(&format!("command -v chromium || {{ {INSTALL}; }} && command -v chromium"))?;
        let word = if found.status.success() { "yes" } else { "no" };
        std::fs::write(folder.join("there"), word).context(|| "chromium".into())
    })?;
    let is_there = std::fs::read_to_string(installed.join("there")).is_ok_and(|word| word == "yes");
    if !is_there {
        env.skip(format!("there is no Chromium; run  {INSTALL}"));
    }
    Ok(is_there)
}

impl Browser {
    /// Starts one.
    pub fn start(env: &Env) -> Result<Self, String> {
        let dir = env.folder()?;
        let script = "mkfifo to from && exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --user-data-dir=profile --remote-debugging-pipe about:blank 3<>to 4<>from";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "/bin/bash", "-c", script]);
        let process = Process::spawn(&dir, "chromium", command)?;
        until(LIMIT, "the browser's pipes are there", || Ok(dir.join("from").exists().then_some(())))?;
        let open = |name: &str| File::options().read(true).write(true).open(dir.join(name)).context(|| name.into());
        let (to, mut pipe) = (open("to")?, open("from")?);
        let (said, from) = channel();
        std::thread::spawn(move || {
            let (mut bytes, mut rest) = ([0; 1 << 16], Vec::new());
            while let Ok(n @ 1..) = pipe.read(&mut bytes) {
                rest.extend_from_slice(&bytes[..n]);
                while let Some(end) = rest.iter().position(|b| *b == 0) {
                    let message: Vec<u8> = rest.drain(..=end).collect();
                    let Ok(message) = serde_json::from_slice(&message[..end]) else { return };
                    if said.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        let mut browser = Self { _process: process, to, from, session: None, number: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}))?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Accessibility.enable"] {
            browser.call(domain, json!({}))?;
        }
        Ok(browser)
    }

    /// A method of the protocol, and its result.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).context(|| method.into())?;
        loop {
            let answer =
                self.from.recv_timeout(LIMIT).map_err(|e| format!("{method}: the browser says nothing: {e}"))?;
            if answer["id"] == self.number {
                return match answer.get("error") {
                    Some(error) => Err(format!("{method}: {error}")),
                    None => Ok(answer["result"].clone()),
                };
            }
            // Without a token the page asks once, to see whether it needs one.
            let entry = &answer["params"]["entry"];
            let asked =
                entry["source"] == "network" && entry["text"].as_str().is_some_and(|t| t.contains("status of 401"));
            let is_wrong = answer["method"] == "Runtime.exceptionThrown" || entry["level"] == "error" && !asked;
            if is_wrong {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    /// What an expression comes to in the page; a promise is awaited.
    pub fn eval(&mut self, expression: &str) -> Result<Value, String> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params)?;
        match answer.get("exceptionDetails") {
            Some(why) => Err(format!("{expression}: {why}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Runs a script in each page that is opened from now on, before the page's own.
    pub fn prepare(&mut self, script: &str) -> Outcome {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).map(drop)
    }

    /// Opens an address in a page that has forgotten the one before.
    pub fn open(&mut self, url: &str) -> Outcome {
        self.call("Page.navigate", json!({"url": "about:blank"}))?;
        self.call("Page.navigate", json!({"url": url})).map(drop)
    }

    /// Waits until an expression is true, or something else that counts as that.
    pub fn await_true(&mut self, what: &str, expression: &str) -> Outcome {
        self.await_true_within(LIMIT, what, expression)
    }

    /// The same, for so long.
    pub fn await_true_within(&mut self, limit: Duration, what: &str, expression: &str) -> Outcome {
        let found = until(limit, what, || {
            let value = self.eval(expression)?;
            Ok((value == true || value.is_string() || value.is_u64()).then_some(()))
        });
        match found {
            Err(why) => {
                let text = self.eval("document.body.innerText.slice(0, 2000)")?;
                Err(format!("{why}; the page: {text}; {:?}", self.complaints))
            }
            ok => ok,
        }
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) -> Outcome {
        self.call("Input.insertText", json!({"text": text})).map(drop)
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: &str, code: u32) -> Outcome {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// How wide the window is, and whether the machine likes it dark.
    pub fn look(&mut self, width: u32, is_dark: bool) -> Outcome {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = json!({"name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" }});
        self.call("Emulation.setEmulatedMedia", json!({"features": [scheme]})).map(drop)
    }

    /// What a screen reader finds that can be used, without a name to say.
    pub fn nameless(&mut self) -> Result<Vec<String>, String> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}))?;
        let nodes = tree["nodes"].as_array().ok_or("no accessibility tree")?;
        let used = ["button", "link", "textbox", "searchbox", "spinbutton", "combobox", "image", "table", "region"];
        let is_used =
            |node: &&Value| used.iter().any(|role| node["role"]["value"] == *role) && node["ignored"] == false;
        let found: Vec<&Value> = nodes.iter().filter(is_used).collect();
        ensure(found.len() > 5, || format!("the tree has {} things to use", found.len()))?;
        let is_nameless = |node: &&&Value| node["name"]["value"].as_str().is_none_or(str::is_empty);
        Ok(found.iter().filter(is_nameless).map(|node| node.to_string()).collect())
    }
}
