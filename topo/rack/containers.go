package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// engineWait bounds requests to the container engine (Docker, Podman) by methods that get no
// context.
const engineWait = time.Minute

// watcherNode is the node of the watcher, the process that connects containers to the switch. No
// host has this name, because names of hosts have no dot.
var watcherNode = timerNode("watcher.docker")

// containerHosts is the hostRuntime of a rack whose hosts are containers.
type containerHosts struct {
	r *Rack
	h *container.Hosts
}

var _ hostRuntime = containerHosts{}

// useContainers says that the hosts of r are containers with these settings.
func (r *Rack) useContainers(s container.Settings) {
	h := container.NewHosts(r.name(), s)
	r.hosts = containerHosts{r, h}
	r.keep = &containerKeeper{keeper: r.keep, h: h, isHost: func(node string) bool { return r.Spec != nil && r.CheckHost(node) == nil }}
}

// Containers returns the settings of a rack whose hosts are containers, or nil if hosts are
// processes.
func (r *Rack) Containers() *container.Settings {
	if b, ok := r.hosts.(containerHosts); ok {
		s := b.h.Settings()
		return &s
	}
	return nil
}

func (b containerHosts) prepare(ctx context.Context) error {
	s := b.h.Settings()
	if _, err := b.h.Engine(ctx); err != nil {
		return err
	}
	if err := s.Save(b.r.Paths); err != nil {
		return err
	}
	if err := b.startWatcher(ctx); err != nil {
		return err
	}
	return b.h.Prepare(ctx, b.r.Spec, b.r.exe)
}

// startWatcher starts the watcher, the process that connects containers to the switch, and waits
// until it answers.
func (b containerHosts) startWatcher(ctx context.Context) error {
	r := b.r
	if err := r.keep.prepare(watcherNode); err != nil {
		return err
	}
	file, err := os.OpenFile(r.Paths.Log(container.WatcherName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start watcher: %w", err)
	}
	defer file.Close() // the watcher has opened the file itself
	cmd := exec.Command(r.exe, "watcher", "--rack", r.Spec.Name)
	cmd.Args[0] = programName
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := r.starter().launch(watcherNode, cmd, cmd.Start); err != nil {
		return err
	}
	detach(cmd)
	return r.starter().waitAnswer(ctx, container.WatcherName, watcherNode)
}

// RunWatcher runs the watcher of the rack called name. The watcher is the process that connects the
// rack's containers to the switch.
func RunWatcher(ctx context.Context, name string, logger *log.Logger) error {
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
	return b.h.Start(ctx, b.r.Spec, host, b.r.exe)
}

func (b containerHosts) cut(host string) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	netns, err := b.h.Netns(ctx, host)
	if errors.Is(err, container.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return ignoreMissing(nl.SetUp(netns, spec.HostIfname, false))
}

// restore brings up the NIC of a host if a holder (a container that only holds a host's network)
// has kept it. Without a holder, the host gets its NIC when it starts.
func (b containerHosts) restore(h *spec.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	netns, err := b.h.Netns(ctx, h.Name)
	if errors.Is(err, container.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	end := b.r.hostEnd(h)
	end.Netns = netns
	return ignoreMissing(nl.Configure(end))
}

func (b containerHosts) view() (join int, own uintptr) {
	return containerNamespaces, unix.CLONE_NEWNS
}

func (b containerHosts) linkSet(host string, up bool) error { return b.h.MarkCut(host, !up) }

func (b containerHosts) revive(ctx context.Context) ([]string, error) {
	pids, err := b.r.keep.pids(watcherNode)
	if err != nil || len(processes(pids)) > 0 {
		return nil, err
	}
	return []string{container.WatcherName}, b.startWatcher(ctx)
}

func (b containerHosts) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	if !exists(b.r.Paths.Ready()) {
		return b.h.RemoveLate(ctx, container.Quiet)
	}
	_, err := b.h.Remove(ctx)
	return err
}

// containerKeeper is the keeper of a rack whose hosts are containers. For the other nodes (the
// switch, timers and the watcher) it uses the embedded keeper.
type containerKeeper struct {
	keeper
	h      *container.Hosts
	isHost func(node string) bool
}

var _ keeper = (*containerKeeper)(nil)

// ask calls f with a context that ends after engineWait, and returns what f returns.
func ask[T any](f func(ctx context.Context) (T, error)) (T, error) {
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
	_, err := ask(func(ctx context.Context) (struct{}, error) { return struct{}{}, k.h.Adopt(ctx, node, pid) })
	return err
}

func (k *containerKeeper) pids(node string) ([]int, error) {
	if !k.isHost(node) {
		return k.keeper.pids(node)
	}
	return ask(func(ctx context.Context) ([]int, error) { return k.h.PIDs(ctx, node) })
}

func (k *containerKeeper) kill(node string) error {
	if !k.isHost(node) {
		return k.keeper.kill(node)
	}
	_, err := ask(func(ctx context.Context) (struct{}, error) { return struct{}{}, k.h.Kill(ctx, node) })
	return err
}

func (k *containerKeeper) hang(node string, on bool) error {
	if !k.isHost(node) {
		return k.keeper.hang(node, on)
	}
	_, err := ask(func(ctx context.Context) (struct{}, error) { return struct{}{}, k.h.Pause(ctx, node, on) })
	return err
}

func (k *containerKeeper) hung(node string) (bool, error) {
	if !k.isHost(node) {
		return k.keeper.hung(node)
	}
	c, err := ask(func(ctx context.Context) (container.Container, error) {
		return k.h.Container(ctx, node, container.PartHost)
	})
	if errors.Is(err, container.ErrNotFound) {
		return false, nil
	}
	return c.State == "paused", err
}

// watch returns the status of the rack's watcher, or nil if the watcher does not answer.
func (r *Rack) watch(ctx context.Context) *container.Watch {
	var raw json.RawMessage
	var w container.Watch
	if answer(ctx, r.Control(container.WatcherName), &raw) != nil || json.Unmarshal(raw, &w) != nil {
		return nil
	}
	return &w
}

// maxLook is how long leftContainers waits for a container engine (Docker, Podman) to list the
// containers of racks.
const maxLook = time.Second

// leftContainers adds to names the racks of which an engine has containers, by the labels of the
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
	return ignoreSilence(err)
}

// ignoreSilence returns nil for the error of an engine that does not answer in time, and any other
// err unchanged.
func ignoreSilence(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// clearBodies removes the containers of a rack whose hosts are containers. If the state folder is
// lost, for example after a reboot, it asks the engine for the rack's containers.
func (r *Rack) clearBodies() error {
	s, err := container.Saved(r.Paths)
	switch {
	case s != nil:
		return containerHosts{r, container.NewHosts(r.name(), *s)}.clear()
	case err == nil && exists(r.Paths.Spec()):
		return nil
	}
	left := make(map[string]bool)
	if err := leftContainers(left); err != nil || !left[r.name()] {
		return err
	}
	socket, err := container.SocketFromEnv()
	if err != nil {
		return err
	}
	return containerHosts{r, container.NewHosts(r.name(), container.Settings{Socket: socket})}.clear()
}
