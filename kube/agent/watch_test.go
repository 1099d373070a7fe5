package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rdmalab/rdmalab/kube/node"
)

// kubelet takes registrations.
type kubelet struct {
	api.UnimplementedRegistrationServer
	came chan string // the resources
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.came <- r.GetResourceName()
	return new(api.Empty), nil
}

// startKubelet makes the socket in a folder, as a kubelet that starts does, and returns what makes it listen there.
func startKubelet(t *testing.T, dir string) (listen func() *kubelet) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, kubeletSocket)})
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), kubeletSocket)
	t.Cleanup(func() { _ = f.Close() })
	return func() *kubelet {
		err := unix.Listen(fd, 1)
		l, err2 := net.FileListener(f)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		k, s := &kubelet{came: make(chan string, 4)}, grpc.NewServer()
		api.RegisterRegistrationServer(s, k)
		go func() { _ = s.Serve(l) }() // it ends by Stop
		t.Cleanup(s.Stop)
		return k
	}
}

// soon returns when a round begins, or ends the test after a minute.
func soon(t *testing.T, next <-chan struct{}) {
	t.Helper()
	select {
	case <-next:
	case <-time.After(time.Minute):
		t.Fatal("no round has begun within a minute")
	}
}

// The agent looks as soon as a kubelet has made its socket, and not only after its interval, which is an hour here.
func TestRoundsSeeAKubelet(t *testing.T) {
	dir := t.TempDir()
	next, err := rounds(t.Context(), dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	startKubelet(t, dir)
	soon(t, next)
	if err := os.WriteFile(filepath.Join(dir, "other.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-next:
		t.Error("a round for a file that is no kubelet's")
	case <-time.After(50 * time.Millisecond):
	}
}

// A folder that cannot be watched is no reason to stop: the interval counts.
func TestRoundsWithoutAFolder(t *testing.T) {
	next, err := rounds(t.Context(), filepath.Join(t.TempDir(), "none"), time.Millisecond)
	if err == nil {
		t.Error("a folder that is not there is watched")
	}
	soon(t, next)
}

// A kubelet that has made its socket, and does not listen yet, gets the registration when it does; without its socket, there is
// none to wait for.
func TestRegisterWaits(t *testing.T) {
	dir := t.TempDir()
	d := newDevices(resourcePort, dir, node.State(t.TempDir()), 1)
	defer d.stop()
	if err := d.register(t.Context()); err == nil || !strings.Contains(err.Error(), "does not run") || !d.gone() {
		t.Errorf("registered with no kubelet: %v, %v", err, d.gone())
	}
	listen := startKubelet(t, dir)
	done := make(chan error)
	go func() { done <- d.register(t.Context()) }()
	for d.gone() { // until the plugin listens, so that it is about to register
		time.Sleep(time.Millisecond)
	}
	k := listen()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if name := <-k.came; name != resourcePort.name {
		t.Errorf("registered %q", name)
	}
}
