//! The functions that are watched: more is told of them than that they were called.

macro_rules! watched {
    ($($family:ident { $($variant:ident = $name:literal,)+ })+) => {
        /// A function that is watched, by the name it has in its library.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Watched {
            $($($variant,)+)+
        }

        impl Watched {
            /// All of them. A record names one by its place here.
            pub const ALL: &'static [Self] = &[$($(Self::$variant),+),+];

            /// Whose function it is.
            pub fn family(self) -> Family {
                match self {
                    $($(Self::$variant)|+ => Family::$family,)+
                }
            }
        }

        /// Their names, in the same order.
        pub const RUNTIME_FUNCTIONS: &[&str] = &[$($($name),+),+];
    };
}

/// Whose functions are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The thread library's, and what else of the C library says how a thread runs.
    Pthread,
    /// Grand Central Dispatch's.
    Dispatch,
    /// Swift concurrency's.
    Swift,
}

watched! {
    Pthread {
        PthreadCreate = "pthread_create",
        // No function of a library: the one that the program gave to `pthread_create`.
        PthreadStartRoutine = "pthread_start_routine",
        // No function either: where that is not hooked, the first call of the thread that is recorded.
        PthreadStarted = "pthread_started",
        PthreadExit = "pthread_exit",
        PthreadJoin = "pthread_join",
        PthreadTryJoin = "pthread_tryjoin_np",
        PthreadTimedJoin = "pthread_timedjoin_np",
        PthreadClockJoin = "pthread_clockjoin_np",
        PthreadCancel = "pthread_cancel",
        PthreadDetach = "pthread_detach",
        // Of these nothing is told as such; they say what the names and stacks of threads are, and how the program ends.
        PthreadSetName = "pthread_setname_np",
        MakeContext = "makecontext",
        MakeFastContext = "make_fcontext",
        SigAltStack = "sigaltstack",
        Exit = "exit",
        ExitAtOnce = "_exit",
        Fork = "fork",
        Execute = "execve",
        ExecuteAt = "execveat",
        ExecuteFile = "fexecve",
        // Go makes system calls itself. Before it forks a child to run a program in, with the path; in that child; before it
        // runs one in its own place; and after that has failed.
        GoFork = "syscall.forkAndExecInChild1",
        GoForked = "syscall.runtime_AfterForkInChild",
        GoExecute = "syscall.runtime_BeforeExec",
        GoNotExecuted = "syscall.runtime_AfterExec",
        // What a process with several threads cannot do, or only if all of them can: Frida leaves before.
        Unshare = "unshare",
        SetNamespace = "setns",
        SetCapabilities = "capset",
        ProcessControl = "prctl",
        // The loader's notification that modules have come or gone. It is not recorded.
        DebugState = "_dl_debug_state",
    }
    Dispatch {
        DispatchAsync = "dispatch_async",
        DispatchAsyncF = "dispatch_async_f",
        DispatchSync = "dispatch_sync",
        DispatchSyncF = "dispatch_sync_f",
        DispatchBarrierAsync = "dispatch_barrier_async",
        DispatchBarrierAsyncF = "dispatch_barrier_async_f",
        DispatchBarrierSync = "dispatch_barrier_sync",
        DispatchBarrierSyncF = "dispatch_barrier_sync_f",
        DispatchAsyncAndWait = "dispatch_async_and_wait",
        DispatchAsyncAndWaitF = "dispatch_async_and_wait_f",
        DispatchBarrierAsyncAndWait = "dispatch_barrier_async_and_wait",
        DispatchBarrierAsyncAndWaitF = "dispatch_barrier_async_and_wait_f",
        DispatchAfter = "dispatch_after",
        DispatchAfterF = "dispatch_after_f",
        DispatchApply = "dispatch_apply",
        DispatchApplyF = "dispatch_apply_f",
        DispatchGroupAsync = "dispatch_group_async",
        DispatchGroupAsyncF = "dispatch_group_async_f",
        DispatchGroupNotify = "dispatch_group_notify",
        DispatchGroupNotifyF = "dispatch_group_notify_f",
        DispatchGroupEnter = "dispatch_group_enter",
        DispatchGroupLeave = "dispatch_group_leave",
        DispatchBlockCancel = "dispatch_block_cancel",
        DispatchSourceCreate = "dispatch_source_create",
        DispatchSourceSetEventHandler = "dispatch_source_set_event_handler",
        DispatchSourceSetEventHandlerF = "dispatch_source_set_event_handler_f",
        DispatchSourceSetCancelHandler = "dispatch_source_set_cancel_handler",
        DispatchSourceSetCancelHandlerF = "dispatch_source_set_cancel_handler_f",
        DispatchSourceSetRegistrationHandler = "dispatch_source_set_registration_handler",
        DispatchSourceSetRegistrationHandlerF = "dispatch_source_set_registration_handler_f",
        // No functions that are hooked: the library's ways to call what it was given. Seen where that is entered.
        DispatchCallout = "_dispatch_client_callout",
        DispatchCallout2 = "_dispatch_client_callout2",
        // Of these nothing is told as such; they say which block is whose copy, and which queues are new.
        BlockCopy = "_Block_copy",
        DispatchQueueCreate = "dispatch_queue_create",
        DispatchQueueCreateWithTarget = "dispatch_queue_create_with_target",
    }
    Swift {
        SwiftTaskCreate = "swift_task_create",
        SwiftTaskCreateCommon = "swift_task_create_common",
        SwiftTaskEnqueue = "swift_task_enqueue",
        SwiftTaskEnqueueGlobal = "swift_task_enqueueGlobal",
        SwiftTaskEnqueueGlobalWithDelay = "swift_task_enqueueGlobalWithDelay",
        SwiftTaskEnqueueGlobalWithDeadline = "swift_task_enqueueGlobalWithDeadline",
        SwiftTaskEnqueueMainExecutor = "swift_task_enqueueMainExecutor",
        SwiftTaskEnqueueOnDispatchQueue = "swift_task_enqueueOnDispatchQueue",
        SwiftTaskEnqueueTaskOnExecutor = "swift_task_enqueueTaskOnExecutor",
        SwiftJobRun = "swift_job_run",
        SwiftJobRunOnTaskExecutor = "swift_job_run_on_task_executor",
        SwiftJobRunOnBothExecutors = "swift_job_run_on_serial_and_task_executor",
        SwiftContinuationInit = "swift_continuation_init",
        SwiftContinuationAwait = "swift_continuation_await",
        SwiftContinuationResume = "swift_continuation_resume",
        SwiftContinuationThrowingResume = "swift_continuation_throwingResume",
        SwiftContinuationThrowingResumeWithError = "swift_continuation_throwingResumeWithError",
        SwiftTaskCancel = "swift_task_cancel",
        SwiftTaskSwitch = "swift_task_switch",
        SwiftTaskFutureWait = "swift_task_future_wait",
        SwiftTaskFutureWaitThrowing = "swift_task_future_wait_throwing",
        SwiftAsyncLetBegin = "swift_asyncLet_begin",
        SwiftAsyncLetGet = "swift_asyncLet_get",
        SwiftAsyncLetGetThrowing = "swift_asyncLet_get_throwing",
        SwiftAsyncLetFinish = "swift_asyncLet_finish",
        SwiftTaskGroupInitialize = "swift_taskGroup_initialize",
        SwiftTaskGroupInitializeWithFlags = "swift_taskGroup_initializeWithFlags",
        SwiftTaskGroupAddPending = "swift_taskGroup_addPending",
        SwiftTaskGroupAttachChild = "swift_taskGroup_attachChild",
        SwiftTaskGroupWaitNextThrowing = "swift_taskGroup_wait_next_throwing",
        SwiftTaskGroupWaitAll = "swift_taskGroup_waitAll",
        SwiftTaskGroupCancelAll = "swift_taskGroup_cancelAll",
        SwiftTaskGroupDestroy = "swift_taskGroup_destroy",
        // No function that is hooked by its name: the one that a task ends with, known by where the task says it is.
        SwiftTaskFutureComplete = "swift_task_future_complete",
        // No function that is hooked by its name: the one by which both `swift_job_run` and actors run a job. It is
        // private, and known by being called by the former. Told as that.
        SwiftRunJob = "swift_run_job",
    }
}

impl Watched {
    /// Whether such functions are looked for in a library: a program's own function may have the same name.
    pub fn may_be_in(library: &str) -> bool {
        const LIBRARIES: [&str; 7] =
            ["libc.so", "libc-2.", "libpthread", "ld-musl", "libdispatch", "libBlocksRuntime", "libswift_Concurrency"];
        LIBRARIES.iter().any(|known| library.starts_with(known))
    }

    /// Whether a function with this symbol may be one that is watched from when a program gives its address away, as the private
    /// functions of Swift's runtime which run jobs, and which tasks end with.
    pub fn is_known_by_address(library: &str, symbol: &str) -> bool {
        const PARTS: [&str; 3] = ["completeTask", "completeInlineTask", "runJobInEstablishedExecutorContext"];
        Landmark::library(library) == Some(Landmark::Swift) && PARTS.iter().any(|part| symbol.contains(part))
    }

    /// The functions without which nothing useful can be told of the runtime that a library is.
    pub fn needed_of(library: &str) -> &'static [&'static str] {
        match Landmark::library(library) {
            Some(Landmark::Dispatch) => {
                &["dispatch_async", "dispatch_async_f", "dispatch_sync", "dispatch_queue_get_label"]
            }
            Some(Landmark::Swift) => &[
                "swift_task_create",
                "swift_task_enqueueGlobal",
                "swift_job_run",
                "swift_continuation_init",
                "swift_continuation_resume",
                "swift_task_getCurrent",
                "swift_task_getJobTaskId",
            ],
            _ => &[],
        }
    }

    /// The watched function with this name, if it is one that is hooked by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        let at = RUNTIME_FUNCTIONS.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied().filter(|watched| {
            !matches!(
                watched,
                Self::PthreadStartRoutine
                    | Self::PthreadStarted
                    | Self::DispatchCallout
                    | Self::DispatchCallout2
                    | Self::SwiftTaskFutureComplete
                    | Self::SwiftRunJob
            )
        })
    }
}

/// A place in a runtime's library that the target must know before it can tell of that runtime's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Landmark {
    /// Where Dispatch's code is, from the first address to the one behind it.
    Dispatch,
    /// The function that tells the label of a queue.
    QueueLabel,
    /// Where Swift concurrency's code is.
    Swift,
    /// The function that tells which task is running.
    CurrentTask,
    /// The function that tells the id of a job.
    TaskId,
}

impl Landmark {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Dispatch, Self::QueueLabel, Self::Swift, Self::CurrentTask, Self::TaskId];

    /// The landmark that a whole library is, by the name of its file.
    pub fn library(name: &str) -> Option<Self> {
        const LIBRARIES: [(&str, Landmark); 2] =
            [("libdispatch", Landmark::Dispatch), ("libswift_Concurrency", Landmark::Swift)];
        LIBRARIES.iter().find(|(known, _)| name.starts_with(known)).map(|(_, landmark)| *landmark)
    }

    /// The landmark that a function of such a library is.
    pub fn function(name: &str) -> Option<Self> {
        match name {
            "dispatch_queue_get_label" => Some(Self::QueueLabel),
            "swift_task_getCurrent" => Some(Self::CurrentTask),
            "swift_task_getJobTaskId" => Some(Self::TaskId),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_stand_ins_are_not() {
        assert_eq!(Watched::by_name("dispatch_async"), Some(Watched::DispatchAsync));
        assert_eq!(Watched::by_name("swift_job_run"), Some(Watched::SwiftJobRun));
        for name in ["pthread_start_routine", "_dispatch_client_callout", "swift_task_future_complete", "main"] {
            assert_eq!(Watched::by_name(name), None, "{name}");
        }
    }

    #[test]
    fn private_functions_of_a_runtime_are_known_in_its_library() {
        let ends = "_ZL12completeTaskPN5swift12AsyncContextEPNS_10SwiftErrorE";
        assert!(Watched::is_known_by_address("libswift_Concurrency.so", ends));
        assert!(!Watched::is_known_by_address("libswiftCore.so", ends));
        assert!(!Watched::is_known_by_address("libswift_Concurrency.so", "_ZN5swift9AsyncTask7destroyEv"));
    }

    #[test]
    fn every_function_is_in_its_place_and_of_a_runtime_that_the_wire_knows() {
        for (place, (watched, name)) in Watched::ALL.iter().zip(RUNTIME_FUNCTIONS).enumerate() {
            assert_eq!(*watched as usize, place, "{name}");
        }
        let told = |watched: &Watched| watched.family() != Family::Pthread && *watched != Watched::BlockCopy;
        for watched in Watched::ALL.iter().filter(|watched| told(watched)) {
            let name = RUNTIME_FUNCTIONS[*watched as usize];
            assert!(codec::profile::Runtime::of(name).is_some(), "{name}");
        }
    }

    #[test]
    fn libraries_are_known_by_their_files() {
        assert_eq!(Landmark::library("libdispatch.so"), Some(Landmark::Dispatch));
        assert_eq!(Landmark::library("libswift_Concurrency.so"), Some(Landmark::Swift));
        assert_eq!(Landmark::library("libswiftDispatch.so"), None);
    }
}
