package rack

import (
	"context"
	"encoding/json"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/container"
)

// RuntimeDocker is the value of Status.Runtime if hosts are containers.
const RuntimeDocker = "docker"

type ContainerStatus struct {
	Name string `json:"name,omitempty"` // "" means that the host has no container
	// State is the engine's name of the state. ExitCode is the exit status of a container that has
	// ended.
	State    string         `json:"state,omitempty"`
	ExitCode int            `json:"exitCode,omitempty"`
	Plug     container.Plug `json:"plug,omitempty"`
	// Plugged, Plugs and Error are those of container.Watched: whether the NIC is in the container,
	// how often it has come there, and the error of the watcher's last attempt to put it there.
	Plugged bool   `json:"plugged"`
	Plugs   int    `json:"plugs"`
	Error   string `json:"error,omitempty"`
	// Seen lists the latest events of the container engine, oldest first.
	Seen []container.Seen `json:"seen,omitempty"`
}

// observe fills in the states of containers that the engine and the watcher report.
func (b containerHosts) observe(ctx context.Context, s *Status) {
	s.Runtime = RuntimeDocker
	all := make(map[string]*ContainerStatus)
	for i := range s.Hosts {
		s.Hosts[i].Container = &ContainerStatus{}
		all[s.Hosts[i].Name] = s.Hosts[i].Container
	}
	for i := range s.Hosts {
		c, err := b.h.Container(ctx, s.Hosts[i].Name, container.PartHost)
		if err != nil {
			continue // there is no container, or the engine does not answer; Status.Watcher says which
		}
		cs := s.Hosts[i].Container
		cs.Name, cs.State, cs.Plug = c.Name, c.State, c.Plug
		if !c.Runs() {
			cs.ExitCode = c.ExitCode
		}
	}
	w := watched(ctx, b.launcher.paths)
	switch {
	case w == nil:
		s.Watcher = "does not answer: containers that start are not plugged; `rdmalab up` with the same flags starts it again"
		return
	case w.Engine != "":
		s.Watcher = w.Engine
	}
	for _, seen := range w.Hosts {
		if cs := all[seen.Host]; cs != nil {
			cs.Plugged, cs.Plugs, cs.Error, cs.Seen = seen.Plugged, seen.Plugs, seen.Error, seen.Seen
		}
	}
}

// watched returns the status of the rack's watcher, or nil if the watcher does not answer.
func watched(ctx context.Context, p rackfile.Paths) *container.Watch {
	var raw json.RawMessage
	var w container.Watch
	if answer(ctx, control.NewClient(p.Socket(container.WatcherName)), &raw) != nil || json.Unmarshal(raw, &w) != nil {
		return nil
	}
	return &w
}
