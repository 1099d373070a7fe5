package nic

import "fmt"

// Status says how an operation ended.
type Status uint8

// Statuses of the paper's table 3.
const (
	// OK: all bytes have arrived.
	OK Status = iota
	// RemoteAuthenticationFailure: the target has refused K_d, or the request was damaged on the
	// way.
	RemoteAuthenticationFailure
	// NACK: the target's queue of inbound requests is above its threshold, or full.
	NACK
	// Timeout: the operation was not complete in time. The target is not reachable, a message was
	// lost, the target has no such bytes, or it does not allow the operation. Some of the bytes may
	// have been moved; no more will be moved from now on.
	Timeout
	// DispatchTimeout: the command waited too long for the NIC's own window. Its request was never
	// sent.
	DispatchTimeout
)

var statusNames = [...]string{"OK", "REMOTE_AUTHENTICATION_FAILURE", "NACK", "TIMEOUT", "DISPATCH_TIMEOUT"}

// String returns the name in the paper.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Stats are the counters of a NIC.
type Stats struct {
	// Sent and Received count messages. SentBytes and ReceivedBytes count the bytes of their
	// frames.
	Sent          uint64 `json:"sent"`
	Received      uint64 `json:"received"`
	SentBytes     uint64 `json:"sentBytes"`
	ReceivedBytes uint64 `json:"receivedBytes"`
	// Ended counts operations of this NIC by Status.
	Ended [len(statusNames)]uint64 `json:"ended"`
	// Malformed counts frames to the UDP port that cannot be parsed. Stale counts messages that
	// belong to no operation in progress. Forged counts messages of operations in progress that are
	// not authentic. Copies counts data messages whose bytes have already arrived.
	Malformed uint64 `json:"malformed"`
	Stale     uint64 `json:"stale"`
	Forged    uint64 `json:"forged"`
	Copies    uint64 `json:"copies"`
	// Served counts inbound operations whose requests were accepted. AuthFails and Nacks count refused
	// ones. Refused counts requests with a correct key, but outside of the region or without the
	// access right; the NIC sends no answer to them.
	Served    uint64 `json:"served"`
	AuthFails uint64 `json:"authFails"`
	Nacks     uint64 `json:"nacks"`
	Refused   uint64 `json:"refused"`
	// Abandoned counts inbound WRITEs and REKEYs whose data did not arrive in time.
	Abandoned uint64 `json:"abandoned"`
	// Unresolved counts requests that were not sent because the MAC address of the target is
	// unknown. Exhausted counts messages that were not sent because this incarnation has used up
	// its counters.
	Unresolved uint64 `json:"unresolved"`
	Exhausted  uint64 `json:"exhausted"`
	Rekeys     uint64 `json:"rekeys"`
}
