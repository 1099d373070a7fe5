//go:build qpcover

package transport

import "github.com/rdmalab/rdmalab/e2e/coverage/record"

func init() { Observer = record.Cells("t") }
