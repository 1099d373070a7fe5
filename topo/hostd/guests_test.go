package hostd

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
)

// A guest's file that cannot be read leaves the other guests reachable, and the log names it once.
func TestGuestsBesideADamagedFile(t *testing.T) {
	var log bytes.Buffer
	n := neighbours{paths: rackfile.Paths{Dir: t.TempDir()}, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := os.MkdirAll(n.paths.Guests(), 0o755); err != nil {
		t.Fatal(err)
	}
	join := func(name, ip string, mac byte) {
		t.Helper()
		host := rackfile.Host{Name: name, Role: rackfile.Guest, Port: "p-" + name, IPv4: netip.MustParseAddr(ip), MAC: wire.MAC{2, 0, 0, 0, 0, mac}}
		if err := guests.Write(n.paths, &guests.Guest{Host: host, Container: "c-" + name, Ifname: "eth0"}); err != nil {
			t.Fatal(err)
		}
		n.read = time.Time{}
	}
	resolves := func(a string) bool {
		_, ok := n.find(netip.MustParseAddr(a))
		return ok
	}
	join("g0", "10.77.0.100", 1)
	if !resolves("10.77.0.100") || resolves("10.77.0.101") {
		t.Fatal("guest g0 is not the only one that is resolved: ", log.String())
	}
	if err := os.WriteFile(filepath.Join(n.paths.Guests(), "g1.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n.read = (time.Time{}); !resolves("10.77.0.100") {
			t.Fatal("guest g0 is not resolved any more")
		}
	}
	if text := log.String(); strings.Count(text, "g1.json") != 1 {
		t.Errorf("the log names the file other than once: %s", text)
	}
	join("g1", "10.77.0.101", 2)
	if !resolves("10.77.0.100") || !resolves("10.77.0.101") {
		t.Error("not all guests are resolved when the file is right again")
	}
}
