//! Keeps finished images in the target folder, named by a hash of everything that they are made from, so that another
//! profile, or a branch that was built before, does not compile the image again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

use crate::Result;
use crate::compiler::Compiler;

/// How many images are kept. One has about a megabyte.
const MAX_IMAGES: usize = 8;

/// The suffix of the file with the machine code of an image.
const MACHINE_CODE: &str = "cwasm.zst";

/// An image: the hash of its WebAssembly, and its compressed machine code.
pub(crate) struct Image {
    pub(crate) id: Vec<u8>,
    pub(crate) compressed: Vec<u8>,
}

/// The place of one image in the cache.
pub(crate) struct Entry {
    folder: PathBuf,
    key: String,
}

impl Entry {
    /// Returns the place of the image that is made from these folders and files by this compiler and by the WebAssembly
    /// compiler that the lock file names.
    pub(crate) fn of(inputs: &[&Path], lock: &Path, compiler: &Compiler, out: &Path) -> Result<Self> {
        let mut hash = Sha256::new();
        for input in inputs {
            add(&mut hash, input)?;
        }
        hash.update(wasm_packages(&fs::read_to_string(lock)?));
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        // The linker is the Rust toolchain's.
        hash.update(Command::new(rustc).arg("--version").output()?.stdout);
        hash.update(compiler.version()?);
        hash.update(env::var("TARGET")?);
        let key = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        // `target/debug/build/PACKAGE/out` is the folder of this script's output.
        let target = out.ancestors().nth(4).unwrap_or(out);
        Ok(Self { folder: target.join("guest-images"), key })
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}.{suffix}", self.key))
    }

    /// Returns the image, if it is in the cache.
    pub(crate) fn read(&self) -> Option<Image> {
        Some(Image { id: fs::read(self.file("id")).ok()?, compressed: fs::read(self.file(MACHINE_CODE)).ok()? })
    }

    /// Adds the image and removes the oldest ones. Each file is complete when it has its name.
    pub(crate) fn write(&self, image: &Image) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        // The id is written last: without it, there is no entry.
        for (suffix, bytes) in [(MACHINE_CODE, &image.compressed), ("id", &image.id)] {
            let unfinished = self.file(&format!("{suffix}.{}", std::process::id()));
            fs::write(&unfinished, bytes)?;
            fs::rename(&unfinished, self.file(suffix))?;
        }
        let mut images: Vec<PathBuf> = fs::read_dir(&self.folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "id"))
            .collect();
        images.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
        for old in images.iter().rev().skip(MAX_IMAGES) {
            for file in [old.clone(), old.with_extension(MACHINE_CODE)] {
                // Another build may have removed it, or an older version of this script may have named it otherwise.
                match fs::remove_file(file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Returns the part of a lock file that is about the WebAssembly compiler.
fn wasm_packages(lock: &str) -> String {
    let is_part = |package: &&str| {
        ["cranelift", "regalloc2", "wasm"].iter().any(|name| package.contains(&format!("name = \"{name}")))
    };
    lock.split("[[package]]").filter(is_part).collect()
}

/// Adds a file, or all files in a folder, with their names and lengths, in an order that does not depend on the system.
fn add(hash: &mut Sha256, path: &Path) -> Result<()> {
    if path.is_dir() {
        let mut inside = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        inside.sort();
        return inside.iter().try_for_each(|path| add(hash, path));
    }
    let content = fs::read(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    hash.update(format!("{name} {}\n", content.len()));
    hash.update(content);
    Ok(())
}
