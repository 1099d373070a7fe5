package plugin

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/store"
)

// program is a host without 1RMA NIC, as package store/client and the simulator make it.
type program struct{ store.Host }

func (program) Address(string) (netip.Addr, error) { return netip.MustParseAddr("10.0.0.1"), nil }

// A program that opens kvcs is told that its rack need not be to blame, and what it can use.
func TestProgramsCannotOpenIt(t *testing.T) {
	_, err := newNode(program{}).Clients(store.ClientOptions{})
	for _, want := range []string{"daemons of hosts", "`rdmalab kvcs get`", "`rdmalab sim kvcs`"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
