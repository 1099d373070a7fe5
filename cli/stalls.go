package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/stall"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/why"
)

// daemonStatus is the part of a daemon's status that has its stalls.
type daemonStatus struct {
	Process metrics.Process `json:"process"`
}

func (d *daemonStatus) stalls(node string) (out []why.Stall) {
	if d.Process.Stalls == nil {
		return nil
	}
	for _, s := range d.Process.Stalls.Recent {
		out = append(out, why.Stall{Node: node, Stall: s})
	}
	return out
}

// stallsOn asks nodes' daemons for their recent stalls. A node that does not answer has none.
func stallsOn(ctx context.Context, r *rack.Rack, nodes ...string) (out []why.Stall) {
	for _, n := range nodes {
		var d daemonStatus
		if n != "" && r.Control(n).Call(ctx, http.MethodGet, "/status", nil, &d) == nil {
			out = append(out, d.stalls(n)...)
		}
	}
	return out
}

// stallsIn returns the recent stalls of all daemons of a rack, each node's together.
func stallsIn(s *rack.Status) (out []why.Stall) {
	for _, n := range append([]rack.NodeStatus{s.Switch}, s.Hosts...) {
		var d daemonStatus
		if json.Unmarshal(n.Daemon, &d) == nil { // a node that is down has no status
			out = append(out, d.stalls(n.Name)...)
		}
	}
	return out
}

// recently is how long ago a stall was that warnOfStalls still names.
const recently = 5 * time.Minute

// warnOfStalls names the daemons that did not get a processor in the last minutes.
func warnOfStalls(w io.Writer, all []why.Stall) {
	var names []string
	var longest stall.Stall
	for _, s := range all {
		if time.Since(s.End()) > recently {
			continue
		}
		if len(names) == 0 || names[len(names)-1] != s.Node {
			names = append(names, s.Node)
		}
		if s.Took > longest.Took {
			longest = s.Stall
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(w, "%s did not run for up to %v in the last 5 minutes, which can end connections with retries exceeded: the processors are busy,\n"+
			"or the process was stopped. `priority: realtime` in the rack file lets the daemons come before other programs\n",
			strings.Join(names, ", "), longest.Took.Round(time.Millisecond))
	}
}
