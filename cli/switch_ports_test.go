package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// The tables name the host at a port as the JSON does, also if the ports of guests are in another
// order than their addresses.
func TestPortsAreNamed(t *testing.T) {
	var macs []switchd.MAC
	if err := json.Unmarshal([]byte(`[{"mac":"02:00:00:00:00:01","port":7,"idle":1,"host":"web"}]`), &macs); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printMACs(&out, rackfile.Names{}, macs); err != nil || !strings.Contains(out.String(), "web   02:00:00:00:00:01  0s ago") {
		t.Errorf("%s, %v", &out, err)
	}
	var groups switchd.Snooping
	const text = `{"state":"forwarding","groups":[{"group":"239.1.2.3","ports":[1,2],"left":1}],"routers":[0],"hosts":["r","","db"]}`
	if err := json.Unmarshal([]byte(text), &groups); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := printGroups(&out, rackfile.Names{}, groups); err != nil || !strings.Contains(out.String(), "routers: r\n") || !strings.Contains(out.String(), "239.1.2.3  1 db") {
		t.Errorf("%s, %v", &out, err)
	}
}

// The table of the switch's counters has the drops of packets that came from no host, as the JSON
// has.
func TestLostPacketsAreShown(t *testing.T) {
	var c switchd.Counters
	if err := json.Unmarshal([]byte(`{"switch":{},"ports":[],"lost":{"emit limit":3,"port down":2}}`), &c); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printPorts(&out, &c, false); err != nil || !strings.Contains(out.String(), "emit limit 3, port down 2") {
		t.Errorf("%s, %v", &out, err)
	}
}
