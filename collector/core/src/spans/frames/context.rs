//! The frames around an event of a runtime.

use codec::{SessionNs, span::SpanId};

use super::{
    super::stack::{Frame, Ran},
    Frames,
};

/// How far inside of a function something may be called that tells of it.
const REACH: usize = 16;

/// The frames around an event that is no function's.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::spans) struct FrameContext {
    /// The frame that the event is about, which was entered at its very time.
    pub(in crate::spans) own: Option<(SpanId, Ran)>,
    /// The frame outside that, or the innermost.
    pub(in crate::spans) caller: Option<SpanId>,
}

impl Frames {
    /// The frames around an event of a runtime that happened at this time, or that is about a frame entered then.
    /// Those are linked: their ends will be told in order.
    pub(in crate::spans) fn context(&mut self, entered: SessionNs) -> FrameContext {
        let probe = self.probe.as_mut().filter(|(frame, _)| frame.start == entered).map(|(frame, _)| {
            frame.linked = true;
            (frame.id, frame.function)
        });
        let frames = &mut self.stack().frames;
        // What tells it may have called others since.
        let reach = frames.len().saturating_sub(REACH);
        let recent = frames.get(reach..).unwrap_or_default();
        let place = recent.iter().rposition(|frame| frame.start == entered).map(|place| reach.saturating_add(place));
        let place = place.filter(|_| probe.is_none());
        let own = place.and_then(|place| frames.get(place)).map(|frame| (frame.id, frame.function, frame.depth));
        let caller = match (place, own) {
            (Some(place), Some((_, _, depth))) => {
                let outside = |frame: &Frame| frame.depth < depth;
                self.stack().frames.get(..place).and_then(|below| below.iter().rposition(outside))
            }
            _ => self.stack().frames.len().checked_sub(1),
        };
        let frames = &mut self.stack().frames;
        if let Some(innermost) = place.or(caller) {
            link(frames, innermost);
        }
        let caller = caller.and_then(|place| frames.get(place)).map(|frame| frame.id);
        FrameContext { own: probe.or(own.map(|(id, function, _)| (id, function))), caller }
    }
}

/// Links a frame, and with it those that it is in: whatever is in another is told before that.
fn link(frames: &mut [Frame], place: usize) {
    let around = frames.get_mut(..=place).unwrap_or_default();
    for frame in around.iter_mut().rev().take_while(|frame| !frame.linked) {
        frame.linked = true;
    }
}
