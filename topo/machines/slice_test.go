package machines

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

const file = `
machines: [{name: m1, ssh: "ssh://root@10.0.0.1:2222"}, {name: m2, ssh: ssh://10.0.0.2}]
hosts: [{name: "cn[0-1]", role: compute}]
`

func parsed(t testing.TB) *rackfile.Rack {
	t.Helper()
	r, err := rackfile.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r.Generation = 7
	return r
}

func TestSlice(t *testing.T) {
	secret := bytes.Repeat([]byte{3}, secretSize)
	b, err := sliceOf(parsed(t), "m2", "v1", secret)
	if err != nil {
		t.Fatal(err)
	}
	r, got, err := ReadSlice(bytes.NewReader(b), "v1")
	if err != nil || r.Machine != "m2" || r.Generation != 7 || !bytes.Equal(got, secret) {
		t.Errorf("%+v %x %v", r, got, err)
	}
	if _, _, err := ReadSlice(bytes.NewReader(b), "v2"); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), `"v1"`) {
		t.Errorf("of another version: %v", err)
	}
	var s Slice
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"no slice of a rack":    `{"version": 1}`,
		"has 32 bytes, not 3":   string(b),
		"the name of a machine": strings.Replace(string(b), `"machine":"m2",`, "", 1),
		"there is no machine":   strings.Replace(string(b), `"machine":"m2"`, `"machine":"m3"`, 1),
		"at most 4194304 bytes": strings.Repeat(" ", maxSlice+1),
	} {
		if strings.Contains(want, "32") {
			short := s
			short.Secret = secret[:3]
			b, _ := json.Marshal(short)
			text = string(b)
		}
		if _, _, err := ReadSlice(strings.NewReader(text), "v1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func FuzzReadSlice(f *testing.F) {
	b, err := sliceOf(parsed(f), "m1", "v1", make([]byte, secretSize))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, secret, err := ReadSlice(bytes.NewReader(b), "v1")
		if err != nil {
			return
		}
		if _, ok := r.Machines.Named(r.Machine); !ok || len(secret) != secretSize {
			t.Fatalf("read %+v", r)
		}
		for _, c := range r.Trunks() { // these index the machines
			r.Remote(c, c.Leaf)
			r.Remote(c, c.Far)
		}
	})
}

func TestWordsForShells(t *testing.T) {
	for in, want := range map[string]string{"a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$(x)`y`": "'$(x)`y`'"} {
		if got := Quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	c := clientOf(parsed(t), rackfile.Paths{Dir: "/d"})
	got := strings.Join(c.conns[0].remote(t.Context(), false, "exec", "cn0", "--", "a b").Args, " ")
	want := "ssh -o ControlPath=/d/ssh/m1 -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=2 -l root -p 2222 -o ControlMaster=no -T -- 10.0.0.1 " +
		"'env' 'RDMALAB_SLICE=1' 'rdmalab' '--rack' 'default' 'exec' 'cn0' '--' 'a b'"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// What ssh and the machine say becomes a reason with what to do.
func TestReasons(t *testing.T) {
	c := clientOf(parsed(t), rackfile.Paths{Dir: "/d"}).conns[0]
	for said, want := range map[string]string{
		"Host key verification failed.\r\n":                       "connect once by hand, ssh ssh://root@10.0.0.1:2222",
		"x\nroot@10.0.0.1: Permission denied (publickey).\r\n":    "ssh-copy-id ssh://root@10.0.0.1:2222",
		"ssh: connect to host 10.0.0.1 port 22: No route to host": "No route to host",
		"": "boom",
	} {
		err := c.unreachable(said, errors.New("boom"))
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "machine m1 does not answer") {
			t.Errorf("%q: %v, want %s", said, err, want)
		}
	}
}

// A machine that does not answer takes its nodes along; a trunk works if both ends say so.
func TestMerge(t *testing.T) {
	c := clientOf(parsed(t), rackfile.Paths{Dir: "/d"})
	part := func(leaf, host string, link rack.LinkState) rack.Status {
		return rack.Status{
			Generation: 7, Switches: []rack.NodeStatus{{Name: leaf, State: rack.StateUp}}, Hosts: []rack.NodeStatus{{Name: host, State: rack.StateUp, PID: 9}},
			Trunks: []rack.TrunkStatus{{Name: "leaf0-leaf1", Link: link}},
		}
	}
	both := []rack.Status{part("leaf0", "cn0", rack.LinkUp), part("leaf1", "cn1", rack.LinkUp)}
	s := c.merge(both, make([]error, 2))
	if s.State != rack.StateUp || s.Trunks[0].Link != rack.LinkUp || s.Hosts[1].Machine != "m2" || s.Hosts[1].PID != 9 || s.Machines[1].Generation != 7 {
		t.Errorf("%+v", s)
	}
	both[0].Trunks[0].Link = rack.LinkNoCarrier
	if s = c.merge(both, make([]error, 2)); s.Trunks[0].Link != rack.LinkNoCarrier {
		t.Errorf("a trunk that works at one end: %+v", s.Trunks)
	}
	both[0].Trunks[0].Notes, both[1].Trunks[0] = map[string]string{"leaf0": "slow"}, rack.TrunkStatus{Name: "leaf0-leaf1", Link: rack.LinkDown, Notes: map[string]string{"leaf1": "slow, too"}}
	if s = c.merge(both, make([]error, 2)); s.Trunks[0].Link != rack.LinkDown || len(s.Trunks[0].Notes) != 2 {
		t.Errorf("a trunk that is cut at the far end, with notes of both: %+v", s.Trunks)
	}
	both[1].Generation = 8
	if s = c.merge(both, make([]error, 2)); s.Hosts[1].State != rack.StateLost || s.Hosts[0].State != rack.StateUp || !strings.Contains(s.Machines[1].Error, "machine m2 has a slice of another rack") {
		t.Errorf("a slice of another generation: %+v", s)
	}
	s = c.merge([]rack.Status{both[0], {}}, []error{nil, errors.New("gone")})
	if s.State != rack.StateLost || s.Hosts[1].State != rack.StateLost || s.Hosts[0].State != rack.StateUp || s.Switches[1].State != rack.StateLost || s.Machines[1].Error != "gone" {
		t.Errorf("%+v", s)
	}
}
