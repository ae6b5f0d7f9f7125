//! The end of the tee.

use std::time::Duration;

use tokio::sync::watch;

/// How long a sink that takes nothing is waited for at the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Says that the end has begun: from then on a sink that takes nothing is waited for only so long.
#[derive(Debug)]
pub(crate) struct Ending(watch::Sender<bool>);

impl Default for Ending {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Ending {
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Returns when the end has begun, and there has been time enough since.
    pub(super) async fn is_too_late(&self) {
        // The sender is in here, so it cannot be gone.
        _ = self.0.subscribe().wait_for(|begun| *begun).await;
        tokio::time::sleep(PATIENCE).await;
    }
}
