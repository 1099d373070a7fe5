package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/unixsocket"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/nl"
)

const (
	// pluginDir is where engines look for the sockets of their plugins.
	pluginDir = "/run/docker/plugins"
	// pluginKind is the content type of the plugin protocol.
	pluginKind = "application/vnd.docker.plugins.v1.1+json"
	// maxRequest bounds a request of the engine, in bytes.
	maxRequest = 1 << 20
	// driverHeaderWait bounds how long the driver waits for the header of a request.
	driverHeaderWait = 5 * time.Second
	// idShown is how many characters of an endpoint's ID are in the alias of its port.
	idShown = 32
	// idInName is how many characters of an endpoint's ID are in the name of its interface. They
	// make the name unique until the engine renames the interface.
	idInName = 9
)

// idShape is the syntax of the container engine's IDs of networks and endpoints.
var idShape = regexp.MustCompile(`^[0-9a-f]{16,64}$`)

// driver is a network driver of the engine. Each of its networks is the link of one host of a rack.
// State that must survive the driver's process is in the rack's state folder and in the interfaces.
type driver struct {
	*plugger
	log *slog.Logger
	mu  sync.Mutex // held during each request of the engine
}

// request holds the fields of the engine's requests that the driver uses. Each request has some of
// them.
type request struct {
	NetworkID  string
	EndpointID string
	Options    map[string]any
	IPv4Data   []struct{ Pool string }
	IPv6Data   []struct{ Pool string }
	Interface  *struct{ Address, AddressIPv6, MacAddress string }
}

// driverServer serves a driver on its socket (driverSocket). done is closed when srv has ended.
type driverServer struct {
	srv  *http.Server
	done chan struct{}
}

// driverSocket returns the path at which the engine finds the driver of a rack.
func driverSocket(rack string) string { return filepath.Join(pluginDir, DriverName(rack)+".sock") }

// serveDriver serves the engine's requests on a socket at path until Close. Only root can open the
// socket; the engine runs as root.
func serveDriver(path string, p *plugger, logger *slog.Logger) (*driverServer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("network driver: %w", err)
	}
	l, err := unixsocket.Listen("unix", path, 0)
	if err != nil {
		return nil, fmt.Errorf("network driver: %w", err)
	}
	d := &driver{plugger: p, log: logger}
	s := &driverServer{done: make(chan struct{})}
	s.srv = &http.Server{Handler: d.handler(), ReadHeaderTimeout: driverHeaderWait, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)}
	go func() {
		defer close(s.done)
		_ = s.srv.Serve(l) // always ErrServerClosed after Close
	}()
	return s, nil
}

// Close ends the server and removes its socket.
func (s *driverServer) Close() error {
	err := s.srv.Close()
	<-s.done
	return err
}

// handler answers the requests of the plugin protocol. Every answer is JSON; its field Err reports
// an error.
func (d *driver) handler() http.Handler {
	empty := func(*request) (any, error) { return object{}, nil }
	calls := map[string]func(*request) (any, error){
		"/Plugin.Activate": func(*request) (any, error) { return object{"Implements": []string{"NetworkDriver"}}, nil },
		"/NetworkDriver.GetCapabilities": func(*request) (any, error) {
			return object{"Scope": "local", "ConnectivityScope": "local"}, nil
		},
		"/NetworkDriver.CreateNetwork":               d.createNetwork,
		"/NetworkDriver.DeleteNetwork":               d.deleteNetwork,
		"/NetworkDriver.CreateEndpoint":              d.createEndpoint,
		"/NetworkDriver.DeleteEndpoint":              d.leave,
		"/NetworkDriver.EndpointOperInfo":            func(*request) (any, error) { return object{"Value": object{}}, nil },
		"/NetworkDriver.Join":                        d.join,
		"/NetworkDriver.Leave":                       d.leave,
		"/NetworkDriver.AllocateNetwork":             empty,
		"/NetworkDriver.FreeNetwork":                 empty,
		"/NetworkDriver.DiscoverNew":                 empty,
		"/NetworkDriver.DiscoverDelete":              empty,
		"/NetworkDriver.ProgramExternalConnectivity": empty,
		"/NetworkDriver.RevokeExternalConnectivity":  empty,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", pluginKind)
		call, ok := calls[r.URL.Path]
		if !ok || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(object{"Err": "rdmalab: no such call"}) // the client may have disconnected
			return
		}
		var req request
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err == nil && len(strings.TrimSpace(string(body))) > 0 {
			err = json.Unmarshal(body, &req)
		}
		var out any
		if err == nil {
			d.mu.Lock()
			out, err = call(&req)
			d.mu.Unlock()
		}
		if err != nil {
			d.log.Warn("refused to the engine", "call", r.URL.Path, "error", err)
			w.WriteHeader(http.StatusBadRequest)
			out = object{"Err": "rdmalab: " + err.Error()}
		}
		_ = json.NewEncoder(w).Encode(out) // the client may have disconnected
	})
}

// linkNetFile returns the path of the file that says to which host a network belongs.
func (d *driver) linkNetFile(networkID string) string {
	return filepath.Join(d.paths.Dir, "cables", networkID)
}

// checkID refuses a text that is no ID, because it could name another file or interface.
func checkID(what, id string) error {
	if !idShape.MatchString(id) {
		return fmt.Errorf("%s %.80q is no ID", what, id)
	}
	return nil
}

// createNetwork handles CreateNetwork: it writes a file that names the host whose link the network
// is.
func (d *driver) createNetwork(r *request) (any, error) {
	if err := checkID("NetworkID", r.NetworkID); err != nil {
		return nil, err
	}
	for _, pool := range append(r.IPv4Data, r.IPv6Data...) {
		if pool.Pool != "" && pool.Pool != "0.0.0.0/0" && pool.Pool != "::/0" {
			return nil, fmt.Errorf("the rack gives the addresses, and the network has %.40q: write ipam: {driver: \"null\"}", pool.Pool)
		}
	}
	generic, _ := r.Options["com.docker.network.generic"].(map[string]any)
	name, _ := generic[LabelHost].(string)
	if _, _, ok := d.rack.Host(name); !ok {
		return nil, fmt.Errorf("a network is the link of one host: write driver_opts: {%s: HOST}; hosts of rack %s: %s",
			LabelHost, d.rack.Name, strings.Join(d.rack.HostNames(), " "))
	}
	file := d.linkNetFile(r.NetworkID)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return object{}, os.WriteFile(file, []byte(name), 0o644)
}

// deleteNetwork removes the file of a network. It returns no error if there is none.
func (d *driver) deleteNetwork(r *request) (any, error) {
	if err := checkID("NetworkID", r.NetworkID); err != nil {
		return nil, err
	}
	return object{}, except(os.Remove(d.linkNetFile(r.NetworkID)), fs.ErrNotExist)
}

func (d *driver) host(r *request) (*rackfile.Host, error) {
	if err := errors.Join(checkID("NetworkID", r.NetworkID), checkID("EndpointID", r.EndpointID)); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(d.linkNetFile(r.NetworkID))
	if err != nil {
		return nil, fmt.Errorf("network %.12s is no link of rack %s", r.NetworkID, d.rack.Name)
	}
	h, _, ok := d.rack.Host(string(b))
	if !ok {
		return nil, fmt.Errorf("network %.12s is the link of %.40q, which rack %s does not have", r.NetworkID, b, d.rack.Name)
	}
	return h, nil
}

// createEndpoint handles CreateEndpoint: it answers with the MAC address of the host's NIC, unless
// the request has it already. It refuses other addresses.
func (d *driver) createEndpoint(r *request) (any, error) {
	h, err := d.host(r)
	if err != nil {
		return nil, err
	}
	out := object{}
	if i := r.Interface; i != nil {
		if i.Address != "" || i.AddressIPv6 != "" {
			return nil, errors.New(`the rack gives the addresses: write ipam: {driver: "null"}`)
		}
		if mac, err := wire.ParseMAC(i.MacAddress); i.MacAddress != "" && (err != nil || mac != h.MAC) {
			return nil, fmt.Errorf("the rack gives the MAC address of %s, %v: leave mac_address out", h.Name, h.MAC)
		} else if i.MacAddress != "" {
			return object{"Interface": out}, nil // the protocol forbids repeating values of the request
		}
	}
	out["MacAddress"] = h.MAC.String()
	return object{"Interface": out}, nil
}

// endpointAlias returns the alias of an endpoint's port. leave finds the port by it.
func (d *driver) endpointAlias(h *rackfile.Host, id string) string {
	return aliasOf(d.rack, h.Name) + "/" + id[:min(len(id), idShown)]
}

// join handles Join: it makes the link. The engine takes the host's end of the link from this
// process's network namespace, which is also the engine's, and puts it into the container.
func (d *driver) join(r *request) (any, error) {
	h, err := d.host(r)
	if err != nil {
		return nil, err
	}
	port := PortEnd(d.rack, d.paths, h)
	port.Alias = d.endpointAlias(h, r.EndpointID)
	if l, err := nl.LinkByName(port.Netns, port.Name); err == nil && l.Carrier {
		return nil, fmt.Errorf("the port of %s is taken: a link has one container", h.Name)
	}
	if err := nl.DeleteLink(port.Netns, port.Name); err != nil { // the link of the container's former incarnation may still exist
		return nil, err
	}
	end := nl.End{Netns: ownNetns, Name: "rbt" + r.EndpointID[:idInName], MAC: h.MAC, Alias: aliasOf(d.rack, h.Name)}
	if err := nl.Connect(port, end, d.rack.LinkMTU); err != nil {
		return nil, err
	}
	if err := d.keepCut(h); err != nil {
		return nil, errors.Join(err, nl.DeleteLink(port.Netns, port.Name))
	}
	return object{
		"InterfaceName":         object{"SrcName": end.Name, "DstPrefix": "rack", "DstName": rackfile.HostIfname},
		"DisableGatewayService": true,
	}, nil
}

// leave handles Leave and DeleteEndpoint: it removes the link of an endpoint if it exists, and
// changes nothing else.
func (d *driver) leave(r *request) (any, error) {
	if err := errors.Join(checkID("NetworkID", r.NetworkID), checkID("EndpointID", r.EndpointID)); err != nil {
		return nil, err
	}
	h, err := d.host(r)
	if err != nil {
		return object{}, nil // the network of this link was deleted
	}
	port := PortEnd(d.rack, d.paths, h)
	l, err := nl.LinkByName(port.Netns, port.Name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && l.Alias != d.endpointAlias(h, r.EndpointID) {
		return object{}, nil
	}
	if err == nil {
		err = nl.DeleteLink(port.Netns, port.Name)
	}
	return object{}, err
}

// RemoveDriver removes the socket of a rack's network driver that was killed. It returns no error
// if there is none.
func RemoveDriver(rack string) error {
	if err := except(os.Remove(driverSocket(rack)), fs.ErrNotExist); err != nil {
		return fmt.Errorf("network driver: %w", err)
	}
	return nil
}

// driverFor makes sure that the rack's driver answers the engine while networks are removed. If no
// watcher of the rack serves the driver, this process serves it until stop is called.
func (h *Hosts) driverFor(ctx context.Context) (stop func() error, err error) {
	var dial net.Dialer
	if c, err := dial.DialContext(ctx, "unix", h.driver); err == nil {
		return c.Close, nil // the watcher serves the driver
	}
	none := &rackfile.Rack{Name: h.name} // a driver that only removes links need not know the hosts
	s, err := serveDriver(h.driver, &plugger{rack: none, paths: h.paths}, slog.New(slog.DiscardHandler))
	if err != nil {
		return func() error { return nil }, err
	}
	return s.Close, nil
}
