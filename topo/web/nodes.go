package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

const (
	// maxAsking bounds the requests to daemons that run at a time.
	maxAsking = 8
	// askWait bounds how long a daemon may take.
	askWait = 3 * time.Second
)

// listings are the kinds of objects of a host's NIC, by their name in a URL.
var listings = map[string]string{"qps": hostd.PathQPs, "mrs": hostd.PathMRs, "cqs": hostd.PathCQs, "cms": hostd.PathCMs}

// Counters are all counters of a node.
type Counters struct {
	Name     string    `json:"name"`
	Counters []Counter `json:"counters"`
	// Ports has packets and bytes of each port of the switch, and its drops by reason.
	Ports json.RawMessage `json:"ports,omitempty"`
}

// help returns the help texts of the counters of NICs, by name.
var help = sync.OnceValue(func() map[string]string {
	m := make(map[string]string)
	for _, s := range hostd.CounterHelp() {
		m[s.Name] = s.Help
	}
	return m
})

// daemons asks daemons on behalf of requests.
type daemons struct {
	call func(ctx context.Context, node, path string, out any) error
	busy chan struct{}
}

// ask asks a daemon when there is a free place.
func (a *daemons) ask(ctx context.Context, node, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		return control.Errorf(http.StatusServiceUnavailable, "too many requests wait for daemons")
	}
	err := a.call(ctx, node, path, out)
	var answered *control.Error
	switch {
	case err == nil, errors.As(err, &answered):
		return err
	}
	return control.Errorf(http.StatusBadGateway, "%s: %v", node, err)
}

// hasNode returns an error if the rack has no such node, or no such host if hostsOnly is set.
func hasNode(r *Rack, name string, hostsOnly bool) error {
	switch {
	case !r.Present:
		return control.Errorf(http.StatusServiceUnavailable, "%s", r.Gone)
	case hostsOnly && switchOf(r.Nodes, name), !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Name == name }):
		return control.Errorf(http.StatusNotFound, "the rack has no host %.60q", name)
	}
	return nil
}

// objects lists the objects of one kind of a host.
func (s *Site) objects(r *http.Request) (any, error) {
	path, ok := listings[r.PathValue("kind")]
	if !ok {
		return nil, control.Errorf(http.StatusNotFound, "there is no listing %.60q; there are qps, mrs, cqs and cms", r.PathValue("kind"))
	}
	state, _, err := s.hub.now(r.Context())
	if err == nil {
		err = hasNode(state, r.PathValue("node"), true)
	}
	if err != nil {
		return nil, err
	}
	var o hostd.Objects
	if err := s.daemons.ask(r.Context(), r.PathValue("node"), path, &o); err != nil {
		return nil, err
	}
	g, err := s.source.Get(r.Context())
	if err == nil {
		for i := range o.QPs {
			o.QPs[i].Peer = g.Rack.PeerName(o.QPs[i].Peer)
		}
	}
	return o, nil
}

// counters lists the counters of a node.
func (s *Site) counters(r *http.Request) (any, error) {
	node := r.PathValue("node")
	state, _, err := s.hub.now(r.Context())
	if err == nil {
		err = hasNode(state, node, false)
	}
	if err != nil {
		return nil, err
	}
	out := Counters{Name: node}
	var list []metrics.Sample
	if switchOf(state.Nodes, node) {
		var c switchd.Counters
		if err := s.daemons.ask(r.Context(), node, "/counters", &c); err != nil {
			return nil, err
		}
		list = metrics.Samples(&c.Switch)
		if out.Ports, err = json.Marshal(c.Ports); err != nil {
			return nil, err
		}
	} else {
		var c hostd.Counters
		if err := s.daemons.ask(r.Context(), node, hostd.PathCounters, &c); err != nil {
			return nil, err
		}
		list = c.Samples
	}
	for _, one := range list {
		text := one.Help
		if text == "" {
			text = help()[one.Name]
		}
		out.Counters = append(out.Counters, Counter{Name: one.Name, Value: one.Value, Help: text})
	}
	return out, nil
}
