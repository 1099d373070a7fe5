package hostd

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/control"
)

// A host of a rack in slow motion has the burst time of its own clock; a host without the key has no
// congestion control, and changes are refused with a sentence that says what to do.
func TestCongestionOfHosts(t *testing.T) {
	p, _ := congestion.Profile(congestion.ProfilePaper, 40_000_000_000)
	h := &rackfile.Host{Congestion: &p}
	if c := congestionOf(&rackfile.Rack{Slow: 400}, h); c.Wake != wakeTime/400 || c.Params != p {
		t.Errorf("wake %v, params %v", c.Wake, c.Params)
	}
	if c := congestionOf(&rackfile.Rack{}, &rackfile.Host{}); c != nil {
		t.Errorf("%+v for a host without the key", c)
	}
	if c := congestionOf(&rackfile.Rack{}, h); c.Wake != 50*time.Microsecond {
		t.Errorf("wake %v", c.Wake)
	}
	dir, _, _ := logged(t)
	cn := control.NewClient(rackfile.Paths{Dir: dir}.Socket("cn0"))
	var out Congestion
	if err := cn.Call(t.Context(), "GET", PathCongestion, nil, &out); err != nil || out.Params != nil || out.Name != "cn0" || len(out.QPs) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
	err := cn.Call(t.Context(), "POST", PathCongestion, CongestionChange{"rp_ai_rate": 7}, &out)
	if err == nil || !strings.Contains(err.Error(), "the rack file turns it on") {
		t.Errorf("a change of what is off: %v", err)
	}
}
