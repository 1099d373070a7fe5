package cli

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func TestCountersTable(t *testing.T) {
	var nic metrics.NIC
	nic.SentPkts, nic.RetransPkts = 12, 3
	for all, want := range map[bool]struct{ lines, fewest int }{false: {2, 2}, true: {0, 40}} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := printCounters(cmd, metrics.Samples(&nic), all); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) < want.fewest || want.lines > 0 && len(lines) != want.lines {
			t.Errorf("all=%v: %d lines:\n%s", all, len(lines), &out)
		}
		if !strings.Contains(out.String(), "roce_retrans_pkts") || !strings.Contains(out.String(), "sent again") {
			t.Errorf("all=%v: name or meaning is missing:\n%s", all, &out)
		}
	}
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	if err := printCounters(cmd, metrics.Samples(&metrics.NIC{}), false); err != nil || !strings.Contains(out.String(), "are 0") {
		t.Errorf("nothing counted: %q, %v", &out, err)
	}
}

func TestEveryCounterIsExplained(t *testing.T) {
	for name, text := range helpTexts() {
		if text == "" {
			t.Errorf("counter %s has no help text", name)
		}
	}
}

// If a counter has fallen because the host was restarted, its present value is its difference.
func TestCountersDiff(t *testing.T) {
	var m control.Mux
	calls := uint64(0)
	control.Handle(&m, "GET "+hostd.PathCounters, func(*http.Request, struct{}) (hostd.Counters, error) {
		calls++
		return hostd.Counters{Name: "cn0", Samples: []metrics.Sample{{Name: "up", Value: 10 * calls}, {Name: "reset", Value: 8 - 3*calls}}}, nil
	})
	path := filepath.Join(t.TempDir(), "s")
	srv, err := control.Serve(path, &m)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	c, err := countersOver(t.Context(), control.NewClient(path), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got := counterMap(c).Counters; got["up"] != 10 || got["reset"] != 2 {
		t.Errorf("difference: %v", got)
	}
}

func TestDropsAreNamed(t *testing.T) {
	p := switchd.PortCounters{RxRing: 2}
	p.Drops = map[pipeline.Reason]uint64{"queue full": 3, "fault": 1}
	if got := drops(p); got != "fault 1, queue full 3, receive ring full 2" {
		t.Errorf("drops: %q", got)
	}
	if got := drops(switchd.PortCounters{}); got != "-" {
		t.Errorf("no drops: %q", got)
	}
}
