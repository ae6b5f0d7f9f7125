//! The keys that join one runtime event to another, by the names that they have on the wire.

use crate::platform::named;

named! {
    /// What joins runtime events to one another, by the names of the attributes that carry it. Each is an unsigned number.
    Key:
    /// The handle of a pthread.
    Pthread = "pthread",
    /// The function that a pthread starts with.
    StartRoutine = "start_routine",
    /// The argument of a start routine.
    Argument = "argument",
    /// Whether a pthread is detached: 0 or 1.
    Detached = "detached",
    /// The value that a thread ended with or that a join received.
    ExitValue = "exit_value",
    /// What the function returned.
    Result = "result",
    /// The id of a Swift task.
    Task = "task",
    /// The id of the task that created it.
    Parent = "parent",
    /// The address of a Swift job.
    Job = "job",
    /// The address that a suspension and its resumption share.
    Continuation = "continuation",
    /// The executor that a job was given to.
    Executor = "executor",
    /// The error that a task or continuation failed with.
    Error = "error",
    /// Flags as the runtime's function was given them.
    Flags = "flags",
    /// The address of a block, or of the context in the `_f` forms.
    Block = "block",
    /// The function that a block or context is run by.
    Invoke = "invoke",
    /// The number of a queue, see the `queue` option.
    Queue = "queue",
    /// The address of a dispatch or task group.
    Group = "group",
    /// When it is to run, as the runtime's function was given it.
    When = "when",
    /// The address of a dispatch source.
    Source = "source",
}
