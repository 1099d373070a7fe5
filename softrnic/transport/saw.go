//go:build !qpcover

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The methods below tell the coverage of tests (make coverage) what became of a packet or a work request, and in which
// state of the queue pair. They do nothing, and cost nothing, in a build without the tag qpcover.

// saw is told the fate of a received packet.
func (*QP) saw(wire.Opcode, string) {}

// sawVerdict is told what the chain of checks said to a received packet.
func (*QP) sawVerdict(wire.Opcode, verdict) {}

// sawAnswer is told what an AETH did.
func (*QP) sawAnswer(wire.Syndrome) {}

// sawPost is told how the post of a work request ended.
func (*QP) sawPost(verbs.WROpcode, error) {}

// sawEnd is told how a work request ended.
func (*QP) sawEnd(verbs.WROpcode, verbs.Status) {}

// sawRetry is told why the oldest work request is sent again.
func (*QP) sawRetry(string) {}
