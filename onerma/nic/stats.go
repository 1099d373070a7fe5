package nic

import "fmt"

// Status says how an operation ended.
type Status uint8

// Statuses of the paper's table 3.
const (
	// OK: all bytes have arrived.
	OK Status = iota
	// RemoteAuthenticationFailure: the target has refused K_d, or a request that was damaged on the
	// way.
	RemoteAuthenticationFailure
	// NACK: the target's queue of inbound requests is above its threshold, or full.
	NACK
	// Timeout: nothing usable has arrived in time: the target is not reachable, a message was lost, or
	// the target has no such bytes, or does not allow the operation. A part of the bytes may have been
	// moved; none will be from now on.
	Timeout
	// DispatchTimeout: the command has waited too long for the NIC's own window, and was never sent.
	DispatchTimeout
)

var statusNames = [...]string{"OK", "REMOTE_AUTHENTICATION_FAILURE", "NACK", "TIMEOUT", "DISPATCH_TIMEOUT"}

// String returns the paper's name.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Stats are the counters of a NIC.
type Stats struct {
	// Sent and Received count messages, SentBytes and ReceivedBytes those of their frames.
	Sent          uint64 `json:"sent"`
	Received      uint64 `json:"received"`
	SentBytes     uint64 `json:"sentBytes"`
	ReceivedBytes uint64 `json:"receivedBytes"`
	// Ended counts operations of this NIC by Status.
	Ended [len(statusNames)]uint64 `json:"ended"`
	// Malformed counts frames to the UDP port that do not parse; Stale messages that belong to no
	// operation in progress; Forged those of operations in progress that are not authentic; Copies
	// data messages whose bytes are there already.
	Malformed uint64 `json:"malformed"`
	Stale     uint64 `json:"stale"`
	Forged    uint64 `json:"forged"`
	Copies    uint64 `json:"copies"`
	// Served counts inbound operations whose requests were accepted. AuthFails and Nacks were refused;
	// Refused are those whose key is right and whose bytes or rights are not, which get no answer.
	Served    uint64 `json:"served"`
	AuthFails uint64 `json:"authFails"`
	Nacks     uint64 `json:"nacks"`
	Refused   uint64 `json:"refused"`
	// Abandoned counts inbound WRITEs and REKEYs whose data did not arrive in time.
	Abandoned uint64 `json:"abandoned"`
	// Unresolved counts requests that were not sent because the MAC address of the target is unknown,
	// Exhausted messages that were not sent because the counters of this incarnation are used up.
	Unresolved uint64 `json:"unresolved"`
	Exhausted  uint64 `json:"exhausted"`
	Rekeys     uint64 `json:"rekeys"`
}
