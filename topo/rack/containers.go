package rack

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// engineWait bounds requests to the container engine (Docker, Podman) by methods that get no
// context.
const engineWait = time.Minute

// watcherNode is the node of the watcher, the process that connects containers to the switch. The
// keeper treats it as a timer. No timer has this name: the name of a timer is the name of a node,
// which has no dot, or this name with one of the suffixes in the map `apart` (timer.go), and
// ".docker" is none of these suffixes.
var watcherNode = timerNode("watcher.docker")

// containerHosts is the hostRuntime of a rack whose hosts are containers.
type containerHosts struct {
	links    links
	launcher launcher
	h        *container.Hosts
}

func (r *Rack) containerHosts() containerHosts {
	return containerHosts{r.links(), r.launcher(), r.containers}
}

func (r *Rack) useContainers(s container.Settings) {
	r.containers = container.NewHosts(r.name(), s)
	r.keep = &containerKeeper{keeper: r.keep, h: r.containers, isHost: func(node string) bool { return r.Spec != nil && r.CheckHost(node) == nil }}
}

// Containers returns the settings of a rack whose hosts are containers, or nil if hosts are
// processes.
func (r *Rack) Containers() *container.Settings {
	if r.containers == nil {
		return nil
	}
	s := r.containers.Settings()
	return &s
}

func (b containerHosts) prepare(ctx context.Context) error {
	s := b.h.Settings()
	if _, err := b.h.Engine(ctx); err != nil {
		return err
	}
	if err := s.Save(b.launcher.paths); err != nil {
		return err
	}
	if err := b.startWatcher(ctx); err != nil {
		return err
	}
	return b.h.Prepare(ctx, b.launcher.spec, b.launcher.exe)
}

func (b containerHosts) startWatcher(ctx context.Context) error {
	if err := b.launcher.spawn(watcherNode, container.WatcherName, 0, here, "watcher", "--rack", b.launcher.spec.Name); err != nil {
		return err
	}
	return b.launcher.waitAnswer(ctx, container.WatcherName, watcherNode)
}

// RunWatcher runs the watcher of the rack called name. The watcher is the process that connects the
// rack's containers to the switch.
func RunWatcher(ctx context.Context, name string, logger *slog.Logger) error {
	if err := passGate(); err != nil {
		return err
	}
	r, err := Open(name)
	if err != nil {
		return err
	}
	s := r.Containers()
	if s == nil {
		return rackError(name, errors.New("its hosts are no containers"))
	}
	return container.RunWatcher(ctx, r.Spec, *s, logger)
}

func (b containerHosts) start(ctx context.Context, host string) error {
	return b.h.Start(ctx, b.launcher.spec, host, b.launcher.exe)
}

// inNetns calls f with the path of the network namespace that has a host's NIC, if there is one.
func (b containerHosts) inNetns(host string, f func(netns string) error) error {
	return ask(func(ctx context.Context) error {
		netns, err := b.h.Netns(ctx, host)
		if errors.Is(err, container.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return ignoreMissing(f(netns))
	})
}

func (b containerHosts) cut(host string) error {
	return b.inNetns(host, func(netns string) error { return nl.SetUp(netns, rackfile.HostIfname, false) })
}

// restore brings up the NIC of a host if a holder (a container that only holds a host's network)
// has kept it. Without a holder, the host gets its NIC when it starts.
func (b containerHosts) restore(h *rackfile.Host) error {
	return b.inNetns(h.Name, func(netns string) error {
		end := b.links.hostEnd(h)
		end.Netns = netns
		return nl.Configure(end)
	})
}

func (b containerHosts) view() (join int, own uintptr) {
	return containerNamespaces, unix.CLONE_NEWNS
}

func (b containerHosts) linkSet(host string, up bool) error { return b.h.MarkCut(host, !up) }

func (b containerHosts) revive(ctx context.Context) ([]string, error) {
	pids, err := b.launcher.keep.pids(watcherNode)
	if err != nil || len(processes(pids)) > 0 {
		return nil, err
	}
	return []string{container.WatcherName}, b.startWatcher(ctx)
}

// containerKeeper is the keeper of a rack whose hosts are containers. For the other nodes (the
// switch, timers and the watcher) it uses the embedded keeper.
type containerKeeper struct {
	keeper
	h      *container.Hosts
	isHost func(node string) bool
}

var _ keeper = (*containerKeeper)(nil)

// ask calls f with a context that ends after engineWait, and returns the error of f.
func ask(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	return f(ctx)
}

func (k *containerKeeper) prepare(node string) error {
	if k.isHost(node) {
		return nil
	}
	return k.keeper.prepare(node)
}

func (k *containerKeeper) adopt(node string, pid int) error {
	if !k.isHost(node) {
		return k.keeper.adopt(node, pid)
	}
	return ask(func(ctx context.Context) error { return k.h.Adopt(ctx, node, pid) })
}

func (k *containerKeeper) pids(node string) (pids []int, err error) {
	if !k.isHost(node) {
		return k.keeper.pids(node)
	}
	err = ask(func(ctx context.Context) (err error) { pids, err = k.h.PIDs(ctx, node); return err })
	return pids, err
}

func (k *containerKeeper) kill(node string) error {
	if !k.isHost(node) {
		return k.keeper.kill(node)
	}
	return ask(func(ctx context.Context) error { return k.h.Kill(ctx, node) })
}

func (k *containerKeeper) hang(node string, on bool) error {
	if !k.isHost(node) {
		return k.keeper.hang(node, on)
	}
	return ask(func(ctx context.Context) error { return k.h.Pause(ctx, node, on) })
}

func (k *containerKeeper) hung(node string) (bool, error) {
	if !k.isHost(node) {
		return k.keeper.hung(node)
	}
	var c container.Container
	err := ask(func(ctx context.Context) (err error) {
		c, err = k.h.Container(ctx, node, container.PartHost)
		return err
	})
	if errors.Is(err, container.ErrNotFound) {
		return false, nil
	}
	return c.State == "paused", err
}

// maxLook is how long leftContainers waits for a container engine (Docker, Podman) to list the
// containers of racks.
const maxLook = time.Second

// leftContainers adds to `names` the racks of which an engine has containers, by the labels of the
// containers. If the engine does not answer, leftContainers adds none.
func leftContainers(names map[string]bool) error {
	socket, err := container.SocketFromEnv()
	if err != nil {
		return nil // the engine is on another machine, so it has no containers of racks here
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxLook)
	defer cancel()
	list, err := container.Leftovers(ctx, socket)
	for _, name := range list {
		names[name] = true
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // the engine does not answer
	}
	return err
}

// removeContainers removes the containers of a rack whose hosts are containers. If the state folder is
// lost, for example after a reboot, it asks the engine for the rack's containers.
func removeContainers(name string, p rackfile.Paths) error {
	s, err := container.Saved(p)
	if s == nil {
		if err == nil && exists(p.Spec()) {
			return nil
		}
		left := make(map[string]bool)
		if err := leftContainers(left); err != nil || !left[name] {
			return err
		}
		socket, err := container.SocketFromEnv()
		if err != nil {
			return err
		}
		s = &container.Settings{Socket: socket}
	}
	h := container.NewHosts(name, *s)
	return ask(func(ctx context.Context) error {
		if !exists(p.Ready()) {
			return h.RemoveLate(ctx, container.Quiet)
		}
		_, err := h.Remove(ctx)
		return err
	})
}
