//! Apps: launched or attached to, owned by one [`App`], seen through any number of [`AppHandle`]s.

pub(crate) mod core;
mod cause;
mod events;
mod prepare;
mod fifo;
mod connected;
mod handle;
mod owner;
mod mpi_reach;
mod listen;
mod context;
mod agent_hosts;
mod again;
mod launch;
mod attach;
mod queued;
mod brought;
mod driven;
mod table;
mod waiting;
mod member;
mod own_launcher;
pub(crate) mod state;
pub(crate) mod stdio;

pub(crate) use self::core::DAEMON_GRACE;
pub(crate) use attach::{News, adopt, gone};
pub use events::Events;
pub use handle::AppHandle;
pub(crate) use own_launcher::refuse_foreign;
pub use owner::App;
pub(crate) use prepare::find_launcher;
pub use stdio::OutputStream;
pub(crate) use waiting::NotThere;
pub use waiting::QueueNews;
