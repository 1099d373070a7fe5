package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/node"
)

// resource is a kind of devices that the node offers.
type resource struct {
	name   string // in limits of containers
	prefix string // of the devices' numbers: no two resources have a device in common
	socket string // the name of the plugin's socket in the kubelet's folder
	// readOnly says that containers may not write in the folder of their device: others have the same folder, and load
	// the library in it. Sockets in it can be connected to all the same.
	readOnly bool
}

// The resources: of Pods that use a NIC, and of leaves and hosts, which make their sockets in the folder.
var (
	resourceNIC  = resource{v1alpha1.ResourceNIC, "nic", "rdmalab.sock", true}
	resourcePort = resource{v1alpha1.ResourcePort, "port", "rdmalab-port.sock", false}
)

// devices is the device plugin of a resource: it offers devices while the node can connect Pods, and none otherwise.
type devices struct {
	api.UnimplementedDevicePluginServer
	of    resource
	dir   string // the kubelet's folder
	state node.State
	count int

	mu     sync.Mutex
	offers bool
	moved  chan struct{} // closed when offers changes
	server *grpc.Server
}

func newDevices(r resource, dir string, state node.State, count int) *devices {
	return &devices{of: r, dir: dir, state: state, count: count, moved: make(chan struct{})}
}

// offer sets whether the node offers devices.
func (d *devices) offer(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.offers != on {
		d.offers = on
		close(d.moved)
		d.moved = make(chan struct{})
	}
}

// list returns the devices, and a channel that is closed when there are others.
func (d *devices) list() ([]*api.Device, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*api.Device
	for i := 0; d.offers && i < d.count; i++ {
		list = append(list, &api.Device{ID: fmt.Sprintf("%s-%03d", d.of.prefix, i), Health: api.Healthy})
	}
	return list, d.moved
}

// ListAndWatch sends the devices, and again when they change.
func (d *devices) ListAndWatch(_ *api.Empty, s api.DevicePlugin_ListAndWatchServer) error {
	for {
		list, moved := d.list()
		if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-s.Context().Done():
			return nil
		case <-moved:
		}
	}
}

// GetDevicePluginOptions says that the plugin has no further calls.
func (*devices) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return new(api.DevicePluginOptions), nil
}

// Allocate gives a container the folder of its device, in which it finds the sockets of the NIC that the CNI plugin
// connects its Pod to, and the variables by which an unmodified RDMA program finds them. It does not make the folder:
// the Pod may go before the plugin is called for it, and then no process would remove it.
func (d *devices) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	a := new(api.AllocateResponse)
	for _, c := range r.GetContainerRequests() {
		if len(c.GetDevicesIds()) != 1 {
			return nil, fmt.Errorf("a container has one %s, not %d", d.of.name, len(c.GetDevicesIds()))
		}
		a.ContainerResponses = append(a.ContainerResponses, &api.ContainerAllocateResponse{
			Mounts: []*api.Mount{{HostPath: d.state.Slot(c.GetDevicesIds()[0]), ContainerPath: node.Mounted, ReadOnly: d.of.readOnly}},
			Envs: map[string]string{
				"LD_PRELOAD":      filepath.Join(node.Mounted, "nic.so"),
				"RDMALAB_VERBS":   filepath.Join(node.Mounted, "nic.verbs"),
				"RDMALAB_NIC_DIR": node.Mounted,
			},
		})
	}
	return a, nil
}

func (d *devices) socket() string { return filepath.Join(d.dir, d.of.socket) }

// gone reports whether the socket is missing: a kubelet that starts removes all, and forgets who was registered.
func (d *devices) gone() bool {
	_, err := os.Lstat(d.socket())
	return err != nil
}

// registerWait bounds how long the kubelet may take to register the plugin. redial says how soon its socket is tried again: it is
// there shortly before the kubelet listens at it.
const registerWait = 5 * time.Second

var redial = grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.6, MaxDelay: 100 * time.Millisecond}}

// register makes the socket again, and registers with the kubelet.
func (d *devices) register(ctx context.Context) error {
	d.stop()
	kubelet := filepath.Join(d.dir, kubeletSocket)
	if _, err := os.Lstat(kubelet); err != nil {
		return fmt.Errorf("register with the kubelet, which does not run: %w", err)
	}
	if err := os.Remove(d.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", d.socket())
	if err != nil {
		return err
	}
	d.server = grpc.NewServer()
	api.RegisterDevicePluginServer(d.server, d)
	go func(s *grpc.Server) { _ = s.Serve(l) }(d.server) // it ends by stop, which closes l
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(redial))
	if err != nil {
		return err
	}
	defer conn.Close() // nothing is written any more
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: d.of.socket, ResourceName: d.of.name}, grpc.WaitForReady(true))
	if err != nil {
		err = fmt.Errorf("register with the kubelet: %w", err)
		if gone := os.Remove(d.socket()); gone != nil && !errors.Is(gone, os.ErrNotExist) { // without it, it is tried again
			err = errors.Join(err, gone)
		}
		return err
	}
	return nil
}

// stop ends the server, and with it the socket.
func (d *devices) stop() {
	if d.server != nil {
		d.server.Stop()
		d.server = nil
	}
}
