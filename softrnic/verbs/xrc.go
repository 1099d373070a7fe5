package verbs

// XRCD is a domain of extended reliable connections (annex A14): requests to a target reach those shared receive
// queues that are in the same domain as the target.
//
// With XRC, processes of one host need one connection to a process of another host, instead of one for each
// pair of processes. The sender has a queue pair of type XRCInitiator. The receivers' host has one of type
// XRCTarget, which is no process's own: each request names the shared receive queue, and so the process, to
// which it goes. Memory is checked in the protection domain of this queue, also for WRITEs, READs and
// atomics. Completions go to the completion queue of the shared receive queue.
type XRCD interface {
	// CreateTarget makes a queue pair of type XRCTarget, which takes neither posts nor completion queues: of
	// init, only the type is used.
	CreateTarget(init QPInit) (QP, error)
	// Dealloc ends the domain. It fails with ErrBusy while it has shared receive queues or targets.
	Dealloc() error
}

// XRCContext is a device with XRC.
type XRCContext interface {
	Context
	AllocXRCD() (XRCD, error)
}
