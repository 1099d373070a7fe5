package container

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// Labels by which a rack finds its containers and networks.
const (
	LabelRack = "rdmalab.rack"
	LabelHost = "rdmalab.host"
	// LabelPart is the label whose value is PartHost or PartHolder.
	LabelPart = "rdmalab.part"
	// LabelPlug is the label whose value is the Plug of the container.
	LabelPlug = "rdmalab.plug"
)

// Values of LabelPart. The container with PartHost has the host's processes. With PlugHolder there
// is also a container with PartHolder, which only holds the host's network namespace.
const (
	PartHost   = "host"
	PartHolder = "holder"
)

// Container is the engine's description of a container.
type Container struct {
	ID, Name string
	Rack     string
	Host     string // host of the rack
	Part     string
	Plug     Plug
	// State is the engine's name of the state: created, running, paused, restarting, exited, dead.
	State string
	// PID is the process ID of the container's first process on this machine; 0 means that it does
	// not run.
	PID int
	// StartedAt is when the container was last started, as the engine prints it. It is different in
	// each incarnation.
	StartedAt string
	ExitCode  int // exit status of the first process, if it has ended
}

// Runs reports whether the container has processes, running or stopped.
func (c *Container) Runs() bool { return c.PID > 1 && (c.State == "running" || c.State == "paused") }

// inspected holds the fields of the engine's description of a container that this package uses.
type inspected struct {
	ID    string `json:"Id"`
	Name  string `json:"Name"`
	State struct {
		Status    string `json:"Status"`
		Pid       int    `json:"Pid"`
		StartedAt string `json:"StartedAt"`
		ExitCode  int    `json:"ExitCode"`
	} `json:"State"`
	Config struct {
		Labels map[string]string `json:"Labels"`
	} `json:"Config"`
}

// Inspect returns the description of a container. id is its ID or name.
func (e *Engine) Inspect(ctx context.Context, id string) (Container, error) {
	var i inspected
	if err := e.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(id)+"/json", nil, nil, &i); err != nil {
		return Container{}, err
	}
	c := containerOf(i.ID, i.Name, i.State.Status, i.Config.Labels)
	c.PID, c.StartedAt, c.ExitCode = i.State.Pid, i.State.StartedAt, i.State.ExitCode
	return c, nil
}

// containerOf describes a container by its labels. A container without LabelPart is PartHost.
func containerOf(id, name, state string, labels map[string]string) Container {
	c := Container{ID: id, Name: strings.TrimPrefix(name, "/"), Rack: labels[LabelRack], Host: labels[LabelHost], Part: PartHost, Plug: Plug(labels[LabelPlug]), State: state}
	if labels[LabelPart] == PartHolder {
		c.Part = PartHolder
	}
	return c
}

type listed struct {
	ID     string            `json:"Id"`
	Names  []string          `json:"Names"`
	Labels map[string]string `json:"Labels"`
	State  string            `json:"State"`
}

// List lists the containers of a rack, running or not; for rack "", those of all racks. It does not
// fill in PID, StartedAt and ExitCode.
func (e *Engine) List(ctx context.Context, rack string) ([]Container, error) {
	label := LabelRack
	if rack != "" {
		label += "=" + rack
	}
	q := filters("label", label)
	q.Set("all", "1")
	var list []listed
	if err := e.call(ctx, http.MethodGet, "/containers/json", q, nil, &list); err != nil {
		return nil, err
	}
	out := make([]Container, 0, len(list))
	for _, l := range list {
		name := ""
		if len(l.Names) > 0 {
			name = l.Names[0]
		}
		out = append(out, containerOf(l.ID, name, l.State, l.Labels))
	}
	return out, nil
}

func (e *Engine) create(ctx context.Context, name string, body any) error {
	return e.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, body, nil)
}

// start starts a container. It returns no error if the container already runs.
func (e *Engine) start(ctx context.Context, id string) error {
	return e.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/start", nil, nil, nil)
}

// kill ends a container's processes, and waits until they have ended. It returns no error if the
// container does not run or does not exist.
func (e *Engine) kill(ctx context.Context, id string) error {
	err := e.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/kill", nil, nil, nil)
	if err != nil {
		return pardon(err, http.StatusConflict, http.StatusNotFound)
	}
	return except(e.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/wait", url.Values{"condition": {"not-running"}}, nil, nil), ErrNotFound)
}

// pause stops a container's processes if on is true, otherwise it continues them.
func (e *Engine) pause(ctx context.Context, id string, on bool) error {
	what := map[bool]string{true: "/pause", false: "/unpause"}[on]
	return e.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+what, nil, nil, nil)
}

// remove ends a container and removes it. It returns no error if the container does not exist or is
// already being removed.
func (e *Engine) remove(ctx context.Context, id string) error {
	err := e.call(ctx, http.MethodDelete, "/containers/"+url.PathEscape(id), url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	var said *EngineError
	if errors.As(err, &said) && (said.Status == http.StatusNotFound || said.Status == http.StatusConflict && strings.Contains(said.Message, "already in progress")) {
		return nil
	}
	return err
}

type network struct {
	ID     string            `json:"Id"`
	Name   string            `json:"Name"`
	Labels map[string]string `json:"Labels"`
}

func (e *Engine) networks(ctx context.Context, rack string) ([]network, error) {
	var list []network
	err := e.call(ctx, http.MethodGet, "/networks", filters("label", LabelRack+"="+rack), nil, &list)
	return list, err
}

func (e *Engine) createNetwork(ctx context.Context, body any) error {
	return e.call(ctx, http.MethodPost, "/networks/create", nil, body, nil)
}

// removeNetwork disconnects the containers of a network, and removes the network. It returns no
// error if the network does not exist.
func (e *Engine) removeNetwork(ctx context.Context, id string) error {
	path := "/networks/" + url.PathEscape(id)
	err := e.call(ctx, http.MethodDelete, path, nil, nil, nil)
	var said *EngineError
	if errors.As(err, &said) && said.Status == http.StatusForbidden { // containers are connected
		var n struct {
			Containers map[string]struct{} `json:"Containers"`
		}
		errs := []error{e.call(ctx, http.MethodGet, path, nil, nil, &n)}
		for c := range n.Containers {
			errs = append(errs, e.call(ctx, http.MethodPost, path+"/disconnect", nil, object{"Container": c, "Force": true}, nil))
		}
		if err = errors.Join(errs...); err == nil {
			err = e.call(ctx, http.MethodDelete, path, nil, nil, nil)
		}
	}
	return except(err, ErrNotFound)
}
