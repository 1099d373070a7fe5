//go:build qpcover

package simrack

import (
	"github.com/rdmalab/rdmalab/e2e/coverage/record"
	"github.com/rdmalab/rdmalab/softrnic/transport"
)

func init() { transport.Observer = record.Cells("s") }
