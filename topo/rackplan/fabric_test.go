package rackplan

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// Each field of a fabric and of a machine makes a difference: otherwise `up` with another file says that the
// rack is up already.
func TestFabricDiffersInEachField(t *testing.T) {
	base := func() *rackfile.Rack {
		return &rackfile.Rack{
			Fabric: &rackfile.Fabric{Leaves: 2, Places: []string{"a", "b"}},
			Slice:  rackfile.Slice{Machines: rackfile.Machines{{Name: "a"}, {Name: "b"}}},
		}
	}
	for _, c := range []struct {
		name string
		of   func(*rackfile.Rack) any
	}{
		{"fabric", func(r *rackfile.Rack) any { return r.Fabric }},
		{"machine", func(r *rackfile.Rack) any { return &r.Machines[1] }},
	} {
		kind := reflect.TypeOf(c.of(base())).Elem()
		for i := range kind.NumField() {
			r := base()
			switch f := reflect.ValueOf(c.of(r)).Elem().Field(i); v := f.Addr().Interface().(type) {
			case *string:
				*v = rackfile.CarrierTCP
			case *int:
				*v++
			case *uint16:
				*v++
			case *bool:
				*v = true
			case *netip.Addr:
				*v = netip.MustParseAddr("10.0.0.9")
			case *[]string:
				*v = []string{"b", "a"}
			default:
				t.Fatalf("%s of a %s: this test does not know the type %v", kind.Field(i).Name, c.name, f.Type())
			}
			if kind.Field(i).Name == "Leaves" || kind.Field(i).Name == "Spines" {
				r.Fabric.Places = append(r.Fabric.Places, "b")
			}
			if fabric(r) == fabric(base()) {
				t.Errorf("%s of a %s makes no difference", kind.Field(i).Name, c.name)
			}
		}
	}
}

// On one machine no carrier means pairs of interfaces, and each carrier something else.
func TestCarriersOfOneMachineDiffer(t *testing.T) {
	seen := make(map[string]string)
	for _, carrier := range []string{"", rackfile.CarrierUDP, rackfile.CarrierTCP} {
		text := fabric(&rackfile.Rack{Fabric: &rackfile.Fabric{Leaves: 2, Carrier: carrier}})
		if other, twice := seen[text]; twice {
			t.Errorf("carriers %q and %q are both %q", carrier, other, text)
		}
		seen[text] = carrier
	}
}
