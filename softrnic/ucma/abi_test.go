package ucma

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The structs have the sizes that the kernel's headers give them.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		want int
	}{
		"create_id": {createID{}, 24}, "create_id_resp": {Handle{}, 4}, "destroy_id": {destroyID{}, 16}, "bind_ip": {bindIP{}, 40 - 0},
		"resolve_ip": {resolveIP{}, 64}, "resolve_route": {resolveRoute{}, 8}, "query": {query{}, 16}, "user_path_rec": {path{}, 64},
		"query_route_resp": {route{}, 208}, "conn_param": {connParam{}, 272}, "ud_param": {datagramParam{}, datagramParamLen},
		"connect without ece": {connect{}, 280}, "listen": {listen{}, 8}, "accept without ece": {accept{}, 288}, "reject": {reject{}, 264},
		"disconnect": {named{}, 4}, "init_qp_attr": {initQPAttr{}, 16}, "set_option": {setOption{}, 24}, "notify": {notify{}, 8},
		"join_ip_mcast": {joinIPMulticast{}, 48},
		"join_mcast":    {joinMulticast{}, 152}, "migrate_id": {migrateID{}, 16}, "uverbs_qp_attr": {qpAttr{}, 144}, "event_resp": {event{}, 336},
	} {
		if got := len(encode(c.v)); got != c.want {
			t.Errorf("%s has %d bytes, want %d", name, got, c.want)
		}
	}
}

// Socket addresses are read as they were written.
func TestAddresses(t *testing.T) {
	for _, s := range []string{"10.77.0.2:7174", "[fd00:77::2]:1", "0.0.0.0:0", "[::]:65535"} {
		want := netip.MustParseAddrPort(s)
		if got, ok := addressOf(want).parse(); !ok || got != want {
			t.Errorf("%v is read as %v, %v", want, got, ok)
		}
	}
	if a := addressOf(netip.AddrPort{}); a != (address{}) {
		t.Errorf("no address is written as %x", a)
	}
	if _, ok := (address{}).parse(); ok {
		t.Error("zeros are an address")
	}
}

func TestStates(t *testing.T) {
	golden.Check(t, "testdata/id.dot", golden.Diagram(t, "id", edges))
	for s := range states {
		for c := range causes {
			x := id{state: s}
			if may := x.may(c); may != x.step(c) || may == (x.state == s) {
				t.Errorf("%v on %v: %v", s, c, may)
			}
			if fmt.Sprint(s, c) == " " {
				t.Errorf("no names for %d, %d", s, c)
			}
		}
	}
}
