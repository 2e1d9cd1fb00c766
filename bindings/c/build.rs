//! The shared library's name for the loader: it changes with `WEIR_ABI_VERSION`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweir.so.0");
}
