package forward

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func TestForward(t *testing.T) {
	s, err := pipeline.New(pipeline.Config{Ports: 2, Program: Program{}})
	if err != nil {
		t.Fatal(err)
	}
	var out packetio.Batch
	frame := make([]byte, 60)
	frame[5] = 1 // the destination is not the source
	s.Frame(0, 0, packetio.Frame{Data: frame}, &out)
	if len(out.Frames) != 1 || out.Frames[0].Port != 1 || s.Deadline() != clock.Never {
		t.Errorf("out %+v, deadline %v", out.Frames, s.Deadline())
	}
	spec := s.Spec()
	if spec.Name != "forward" || spec.Bits() != 0 {
		t.Errorf("spec %+v", spec)
	}
}
