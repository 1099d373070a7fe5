package perf

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ErrCancelled is the error of a run that ended because Config.Cancelled returned true.
var ErrCancelled = errors.New("cancelled")

// CompletionError is the error of a work request that completed with an error.
type CompletionError struct {
	Op     string // e.g. "write"
	Msg    uint64 // number of the message, from 0
	Status verbs.Status
	Vendor uint32
}

// hints are texts for the user that say what to check, by the status of a completion.
var hints = map[verbs.Status]string{
	verbs.RetryExcErr:    "the peer did not answer in time: is it up and is the link passing both ways? See `rdmalab status`, `rdmalab faults`, and roce_retrans_pkts in `rdmalab counters`",
	verbs.RNRRetryExcErr: "the peer posted no receive in time: see send_rnr_err and out_of_buffer in the peer's counters",
	verbs.RemAccessErr:   "the peer refused address, length, key or right: was its region freed?",
	verbs.RemInvReqErr:   "the peer refused the request itself: see resp_invalid_request in its counters",
	verbs.RemOpErr:       "the peer, or a restarted switch in its place, could not execute the request: see its log",
	verbs.WRFlushErr:     "the queue pair was in error before: an earlier completion has the reason, or the peer has ended the connection",
	verbs.LocProtErr:     "the local buffer is not registered for this",
	verbs.BadRespErr:     "the peer's answer did not fit the request: capture the link and look at the last response",
	verbs.FatalErr:       "the NIC is down",
}

func (e *CompletionError) Error() string {
	s := fmt.Sprintf("%s %d: %v", e.Op, e.Msg, e.Status)
	if e.Vendor != 0 {
		s += fmt.Sprintf(" (vendor error %#x)", e.Vendor)
	}
	if h := hints[e.Status]; h != "" {
		s += "; " + h
	}
	return s
}

// DataError is the error of a message or an atomic with a wrong result.
type DataError struct {
	Op  string
	Msg uint64
	// Offset is the offset of the first wrong byte; -1 for an atomic. Got and Want are the values of
	// this byte, or of the atomic's word.
	Offset    int
	Got, Want uint64
}

func (e *DataError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("verification failed: %s %d: got %#x, want %#x: an atomic was lost or done twice", e.Op, e.Msg, e.Got, e.Want)
	}
	return fmt.Sprintf("verification failed: %s %d: byte %d of the message is %#02x, want %#02x", e.Op, e.Msg, e.Offset, e.Got, e.Want)
}
