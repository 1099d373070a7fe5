package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/stall"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// status warns of the daemons that did not run in the last minutes, each once, with the longest time.
func TestWarnOfStalls(t *testing.T) {
	node := func(name string, stalls ...stall.Stall) rack.NodeStatus {
		b, err := json.Marshal(daemonStatus{metrics.Process{Stalls: &stall.Summary{Recent: stalls}}})
		if err != nil {
			t.Fatal(err)
		}
		return rack.NodeStatus{Name: name, Daemon: b}
	}
	ago := func(d, took time.Duration) stall.Stall { return stall.Stall{Began: time.Now().Add(-d), Took: took} }
	s := rack.Status{Switch: node("switch", ago(time.Minute, 60*time.Millisecond), ago(time.Second, 556*time.Millisecond)), Hosts: []rack.NodeStatus{
		node("cn0", ago(time.Hour, time.Second)), node("cn1", ago(time.Second, 70*time.Millisecond)), node("cn2"), {Name: "cn3"},
	}}
	var b strings.Builder
	warnOfStalls(&b, stallsIn(&s))
	if want := "switch, cn1 did not run for up to 556ms in the last 5 minutes"; !strings.HasPrefix(b.String(), want) {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	s.Switch, s.Hosts = rack.NodeStatus{}, s.Hosts[:1]
	if warnOfStalls(&b, stallsIn(&s)); b.Len() > 0 {
		t.Errorf("%q", b.String())
	}
}
