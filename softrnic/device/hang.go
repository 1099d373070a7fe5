package device

import "sync/atomic"

// Hang stops the threads of an application while the NIC goes on, as on a machine whose processors
// hang. Between Begin and End, a thread blocks when it enters the NIC, when it wakes from a wait
// for the NIC or from Sleep, and when it calls Wait. The zero value does not hang. All methods are
// safe for several goroutines.
type Hang struct {
	ended atomic.Pointer[chan struct{}] // closed by End; nil means that the application does not hang
}

// Begin stops the threads of the application. It does nothing if they are already stopped.
func (h *Hang) Begin() {
	ended := make(chan struct{})
	h.ended.CompareAndSwap(nil, &ended)
}

// End lets the threads of the application run again. It does nothing if they are not stopped.
func (h *Hang) End() {
	if ended := h.ended.Swap(nil); ended != nil {
		close(*ended)
	}
}

// On reports whether the threads of the application are stopped.
func (h *Hang) On() bool { return h.ended.Load() != nil }

// waits reports whether Wait would block.
func (h *Hang) waits() bool { return h != nil && h.On() }

// Wait blocks while the application hangs. The caller must not hold a lock that the NIC needs. A
// nil Hang never blocks.
func (h *Hang) Wait() {
	if h == nil {
		return
	}
	for ended := h.ended.Load(); ended != nil; ended = h.ended.Load() {
		<-*ended
	}
}
