package hostd

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/topo/guests"
)

// A host writes its log in the format of the rack's description: each record has a level, and what a reader looks for
// is an attribute.
func TestLogFormats(t *testing.T) {
	for _, isJSON := range []bool{false, true} {
		r := testRack()
		r.LogJSON = isJSON
		dir, out := describe(t, r), new(heard)
		paths := rackfile.Paths{Dir: dir}
		a, _ := memcable.Pair(memcable.Config{})
		h, err := Open(Config{
			Dir: dir, Name: "cn0", Log: slog.New(guests.LogHandler(paths, out)), listen: r.Hosts[0].IPv4,
			open: func(*rackfile.Host) (port, packetio.Waiter, error) {
				return &end{a, r.Hosts[0].MAC}, memcable.NewWaiter(a), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := control.NewClient(paths.Socket("cn0")).Call(t.Context(), "POST", PathNIC, NICRequest{State: StateDown}, nil); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for _, line := range lines {
			var x struct{ Time, Level, Msg string }
			if err := json.Unmarshal([]byte(line), &x); (err == nil) != isJSON || isJSON && (x.Level == "" || x.Time == "") {
				t.Errorf("JSON %v: %s", isJSON, line)
			}
		}
		want := "level=INFO msg=\"NIC crashed\""
		if isJSON {
			want = `"level":"INFO","msg":"NIC crashed"`
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}
