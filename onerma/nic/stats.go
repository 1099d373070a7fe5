package nic

import (
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

// Status says how an operation ended.
type Status uint8

// Statuses of the paper's table 3.
const (
	// OK: all bytes have arrived.
	OK Status = iota
	// RemoteAuthenticationFailure: the target has refused the request's key (K_d), has no such
	// region, or the request was damaged on the way.
	RemoteAuthenticationFailure
	// NACK: the target has refused the request, because too many bytes or requests wait there, or
	// because its window has not admitted a WRITE or REKEY in time.
	NACK
	// Timeout: the operation was not complete in time. Either the target is not reachable, or a
	// message was lost, or the region does not have these bytes, or it does not allow the
	// operation. Some of the bytes may have been moved; no more will be moved from now on.
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
	Sent          uint64 `json:"sent" name:"onerma_tx_msgs" help:"1RMA messages sent"`
	Received      uint64 `json:"received" name:"onerma_rx_msgs" help:"1RMA messages received for this NIC"`
	SentBytes     uint64 `json:"sentBytes" name:"onerma_tx_bytes" help:"bytes of the frames of 1RMA messages sent"`
	ReceivedBytes uint64 `json:"receivedBytes" name:"onerma_rx_bytes" help:"bytes of the frames of 1RMA messages received"`
	// Ended counts operations of this NIC by Status.
	Ended     [len(statusNames)]uint64 `json:"ended"`
	Malformed uint64                   `json:"malformed" name:"onerma_rx_malformed" help:"frames to the UDP port of 1RMA that cannot be parsed"`
	// Stale, Forged and Copies count messages that the NIC has ignored.
	Stale  uint64 `json:"stale" name:"onerma_rx_stale" help:"messages that belong to no operation in progress"`
	Forged uint64 `json:"forged" name:"onerma_rx_forged" help:"messages of operations in progress that are not authentic"`
	Copies uint64 `json:"copies" name:"onerma_rx_copies" help:"data messages whose bytes had already arrived"`
	// Served, AuthFails, Nacks and Refused count inbound operations. The NIC sends no answer to
	// those of Refused. Refused also counts Pull messages that name too long a timeout; the NIC
	// does not answer these either.
	Served    uint64 `json:"served" name:"onerma_served" help:"inbound operations that were accepted"`
	AuthFails uint64 `json:"authFails" name:"onerma_auth_failures_sent" help:"inbound operations refused: no valid key"`
	Nacks     uint64 `json:"nacks" name:"onerma_nacks_sent" help:"inbound operations refused: too many bytes wait"`
	Refused   uint64 `json:"refused" name:"onerma_refused" help:"inbound operations with a correct key, but outside of the region or without the access right"`
	// Abandoned counts inbound WRITEs and REKEYs that have ended by timeout at this NIC.
	Abandoned uint64 `json:"abandoned" name:"onerma_abandoned" help:"inbound WRITEs and REKEYs whose data did not arrive in time"`
	// Unresolved counts requests that were not sent, Exhausted messages of any kind that were not
	// sent.
	Unresolved uint64 `json:"unresolved" name:"onerma_unresolved" help:"requests not sent: the target's MAC address is not known"`
	Exhausted  uint64 `json:"exhausted" name:"onerma_exhausted" help:"messages not sent: this incarnation has used up its counters"`
	Rekeys     uint64 `json:"rekeys" name:"onerma_rekeys" help:"keys of regions that peers have replaced"`
}

// endedHelp explains the counters of Stats.Ended.
var endedHelp = [len(statusNames)]string{
	"operations that ended as OK", "operations that the target refused: no valid key", "operations that the target refused: too many bytes waited",
	"operations that were not complete in time", "operations that waited too long for this NIC's window",
}

// Samples returns the counters with names and explanations.
func (s *Stats) Samples() []metrics.Sample {
	list := metrics.Samples(s)
	for i, n := range s.Ended {
		list = append(list, metrics.Sample{Name: "onerma_ended_" + strings.ToLower(statusNames[i]), Help: endedHelp[i], Value: n})
	}
	return list
}

// Add adds the counters of another incarnation of the NIC.
func (s *Stats) Add(from *Stats) {
	metrics.Add(s, *from)
	for i, n := range from.Ended {
		s.Ended[i] += n
	}
}
