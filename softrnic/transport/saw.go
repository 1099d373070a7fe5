//go:build !qpcover

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The methods below report to the coverage of tests (make coverage) what became of a packet or a
// work request, and in which state of the queue pair. In a build without the tag qpcover they do
// nothing and cost nothing.

// saw reports the fate of a received packet.
func (*core) saw(wire.Opcode, string) {}

// sawVerdict reports the verdict of the chain of checks on a received packet.
func (*core) sawVerdict(wire.Opcode, verdict) {}

// sawAnswer reports the effect of an AETH.
func (*core) sawAnswer(wire.Syndrome) {}

// sawPost reports how the post of a work request ended.
func (*core) sawPost(verbs.WROpcode, error) {}

// sawEnd reports how a work request ended.
func (*core) sawEnd(verbs.WROpcode, verbs.Status) {}

// sawRetry reports why the oldest work request is sent again.
func (*core) sawRetry(string) {}
