//go:build !qpcover

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The methods below report to the measurement of test coverage (make coverage) how a packet or a
// work request was handled, and in which state of the queue pair. Without the build tag qpcover
// they do nothing and cost nothing.

// saw reports how a received packet was handled.
func (*core) saw(wire.Opcode, string) {}

func (*core) sawVerdict(wire.Opcode, verdict) {}

// sawAnswer reports that the requester has handled an ACK or NAK with this syndrome.
func (*core) sawAnswer(wire.Syndrome) {}

// sawPost reports how the post of a work request ended.
func (*core) sawPost(verbs.WROpcode, error) {}

// sawEnd reports how a work request ended.
func (*core) sawEnd(verbs.WROpcode, verbs.Status) {}

// sawRetry reports why the oldest work request is sent again.
func (*core) sawRetry(string) {}
