package fault

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The opcodes of XRC belong to the classes of those of RC, and reserved ones to none.
func TestClassesXRC(t *testing.T) {
	for rc := range wire.ServiceUC {
		if !rc.Known() {
			continue
		}
		xrc := rc | wire.ServiceXRC
		if isRequest(xrc) != isRequest(rc) || isResponse(xrc) != isResponse(rc) {
			t.Errorf("%v is a request: %t, a response: %t", xrc, isRequest(xrc), isResponse(xrc))
		}
	}
	for _, op := range []wire.Opcode{wire.CNP, 0xe0} {
		if isRequest(op) || isResponse(op) {
			t.Errorf("%v is in a class", op)
		}
	}
}
