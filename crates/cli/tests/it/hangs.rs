//! A `spinney` that hangs: it is told with where its threads wait, and killed, so that the test that
//! waits for it fails and says what it ran.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// No run of the tests takes as long. One that is to be killed many times may: who asks for more
/// kills than CI looks for himself.
const LONGEST: Duration = Duration::from_secs(600);

/// Looks from now on after whatever this process starts.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    if std::env::var_os("SPINNEY_KILLS").is_none() {
        ONCE.call_once(|| drop(thread::spawn(|| look_every(Duration::from_secs(5)))));
    }
}

fn look_every(pause: Duration) {
    let mut seen: Vec<(u32, Instant)> = Vec::new();
    loop {
        thread::sleep(pause);
        let running = children();
        seen.retain(|(id, _)| running.contains(id));
        for id in running {
            match seen.iter().find(|(known, _)| *known == id) {
                None => seen.push((id, Instant::now())),
                Some((_, since)) if since.elapsed() < LONGEST => {}
                Some(_) => {
                    // Not what the test prints: that is shown when the test ends, and it may not.
                    let _ = io::stderr().write_all(told(id).as_bytes());
                    let _ = process::Command::new("kill").args(["-KILL", &id.to_string()]).status();
                }
            }
        }
    }
}

/// The processes that run the binary for this one.
fn children() -> Vec<u32> {
    let own = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = own.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let ids = lists.collect::<Vec<_>>().join(" ");
    let ids = ids.split_whitespace().filter_map(|id| id.parse().ok());
    ids.filter(|id| text(&process_of(*id).join("comm")).trim() == "spinney").collect()
}

fn process_of(id: u32) -> PathBuf {
    Path::new("/proc").join(id.to_string())
}

fn text(path: &Path) -> String {
    fs::read(path).map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into())
}

/// What a process runs, and what each of its threads waits for.
fn told(id: u32) -> String {
    let process = process_of(id);
    let mut told = format!("\nhangs: {}\n", text(&process.join("cmdline")).replace('\0', " "));
    for thread in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
        let [name, waits, call] =
            ["comm", "wchan", "syscall"].map(|file| text(&thread.path().join(file)));
        let (name, call) = (name.trim(), call.trim());
        told.push_str(&format!("  {name}: {waits} ({call})\n"));
    }
    told
}
