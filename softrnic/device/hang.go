package device

import "sync/atomic"

// Hang stops the threads of an application while the NIC goes on, as on a machine whose processors
// hang. From Begin to End a thread stops where it enters the NIC, where it wakes from a wait for the
// NIC or from Sleep, and where it calls Wait. The zero value does not hang. All methods are safe for
// several goroutines.
type Hang struct {
	ended atomic.Pointer[chan struct{}] // closed by End; nil: the application does not hang
}

// Begin stops the threads. It does nothing if the application hangs.
func (h *Hang) Begin() {
	ended := make(chan struct{})
	h.ended.CompareAndSwap(nil, &ended)
}

// End lets the threads go on. It does nothing if the application does not hang.
func (h *Hang) End() {
	if ended := h.ended.Swap(nil); ended != nil {
		close(*ended)
	}
}

// On reports whether the application hangs.
func (h *Hang) On() bool { return h.ended.Load() != nil }

// Wait returns when the application does not hang. The caller holds no lock that the NIC needs. An
// application with a nil Hang never hangs.
func (h *Hang) Wait() {
	if h == nil {
		return
	}
	for ended := h.ended.Load(); ended != nil; ended = h.ended.Load() {
		<-*ended
	}
}
