// Package agent is the node agent: a DaemonSet whose Pod, the only one with folders of the node, installs the CNI plugin
// and its entry in the conflist, and keeps looking whether they are there; and that offers the node's NICs to
// the kubelet while they are.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/kube/node"
)

// Config says what the agent works on.
type Config struct {
	// Net and Bin are the folders of CNI networks and plugins, Kubelet that of device plugins, State the state
	// of the node.
	Net, Bin, Kubelet string
	State             node.State
	// Plugin is the path of the CNI plugin's program.
	Plugin string
	// NICs is how many Pods of the node can use a NIC, and as many can be leaves and hosts.
	NICs int
	Log  *slog.Logger
	// Report is called when something was wrong with the plugin, or is and cannot be repaired, and when all is
	// well again: wrong is then "".
	Report func(ctx context.Context, wrong string)
}

// look is the interval at which the agent looks.
const look = 500 * time.Millisecond

// agent is a running agent.
type agent struct {
	cfg    Config
	plugin []byte
	lists  conflists
	offers []*devices
	last   string // what was wrong at the last look
	told   bool   // that something is wrong was reported last
	swept  time.Time
}

func newAgent(cfg Config, plugin []byte) *agent {
	a := &agent{cfg: cfg, plugin: plugin, lists: conflists{cfg.Net, cfg.Bin}}
	for _, r := range []resource{resourcePort, resourceNIC} {
		a.offers = append(a.offers, newDevices(r, cfg.Kubelet, cfg.State, cfg.NICs))
	}
	return a
}

// Run runs the agent until ctx ends. It then takes the plugin away, unless a rack is on the node.
func Run(ctx context.Context, cfg Config) error {
	plugin, err := os.ReadFile(cfg.Plugin)
	if err != nil {
		return fmt.Errorf("the CNI plugin: %w", err)
	}
	a := newAgent(cfg, plugin)
	if err := os.MkdirAll(cfg.State.Slots(), 0o755); err != nil {
		return err
	}
	next, err := rounds(ctx, cfg.Kubelet, look)
	if err != nil {
		cfg.Log.Warn("a kubelet that starts is seen only at the next look: raise fs.inotify.max_user_instances, or make the folder", "folder", cfg.Kubelet, "error", err)
	}
	first := true
	for {
		a.step(ctx, first)
		first = false
		select {
		case <-ctx.Done():
			return a.end()
		case <-next:
		}
	}
}

// step looks once. What is wrong at the first look is only the installation.
func (a *agent) step(ctx context.Context, first bool) {
	if !first {
		a.register(ctx) // a kubelet that has started refuses Pods until then, and what is offered is known
	}
	wrong, err := a.lists.ensure(a.plugin, true)
	if err != nil {
		wrong = err.Error()
	}
	for _, d := range a.offers {
		d.offer(err == nil)
	}
	switch {
	case wrong == "" && a.told:
		a.told = false
		a.cfg.Report(ctx, "")
	case wrong != "" && wrong != a.last && (err != nil || !first):
		a.told = true
		a.cfg.Report(ctx, wrong)
	}
	a.last = wrong
	if first {
		a.register(ctx)
	}
	if time.Since(a.swept) >= sweepEvery {
		a.swept = time.Now()
		a.sweep(sweepAge)
	}
}

// register registers the resources that the kubelet does not have, all at the same time: the kubelet looks at its Pods some
// milliseconds after it takes registrations.
func (a *agent) register(ctx context.Context) {
	var all sync.WaitGroup
	for _, d := range a.offers {
		if !d.gone() {
			continue
		}
		all.Go(func() {
			if err := d.register(ctx); err != nil {
				a.cfg.Log.Warn("device plugin", "resource", d.of.name, "error", err)
				return
			}
			a.cfg.Log.Info("registered with the kubelet", "resource", d.of.name)
		})
	}
	all.Wait()
}

// sweepEvery is the interval at which folders of devices are looked at that no record names, and sweepAge how old they
// are when they go: the runtime may be about to mount one.
const (
	sweepEvery = 10 * time.Second
	sweepAge   = time.Minute
)

// sweep removes folders of devices that no record names: those of Pods for which the plugin is not called, as one in the
// node's network, or whose last call has left one.
func (a *agent) sweep(age time.Duration) {
	release, err := a.cfg.State.Lock()
	if err == nil {
		err = a.cfg.State.Sweep(age, nil)
		release()
	}
	if err != nil {
		a.cfg.Log.Warn("folders of devices", "error", err)
	}
}

// end takes the plugin away if no rack is on the node.
func (a *agent) end() error {
	for _, d := range a.offers {
		d.stop()
	}
	a.sweep(0)
	used := errors.New("a rack is on this node")
	if err := a.cfg.State.Each(func(node.Rack) error { return used }); err != nil {
		a.cfg.Log.Info("the plugin stays", "reason", err)
		return nil
	}
	_, err := a.lists.ensure(a.plugin, false)
	return err
}
