package crosscheck

import (
	"errors"
	"reflect"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A difference in any one field is reported with the name of the field: each field of a frame is
// changed in turn.
func TestCompareFindsEveryField(t *testing.T) {
	fields := 0
	var walk func(path string, f *wire.Frame, v reflect.Value)
	walk = func(path string, f *wire.Frame, v reflect.Value) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				if path != "" {
					name = path + "." + name
				}
				walk(name, f, v.Field(i))
			}
			return
		}
		fields++
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		switch {
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.CanUint():
			v.SetUint(v.Uint() ^ 1)
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.Kind() == reflect.Array:
			v.Index(0).SetUint(v.Index(0).Uint() ^ 1)
		case v.Kind() == reflect.Slice:
			v.Set(reflect.ValueOf([]byte{1}))
		default:
			t.Fatalf("%s has kind %v: teach the test to change it", path, v.Kind())
		}
		d := compare("", reflect.ValueOf(wire.Frame{}), reflect.ValueOf(*f))
		if d == nil || d.Field != path {
			t.Errorf("%s differs, found %v", path, d)
		}
		v.Set(was)
	}
	var f wire.Frame
	walk("", &f, reflect.ValueOf(&f).Elem())
	if fields < 50 {
		t.Errorf("%d fields were changed: the walk misses most of a frame", fields)
	}
	if d := compare("", reflect.ValueOf(wire.Frame{}), reflect.ValueOf(f)); d != nil {
		t.Errorf("equal frames differ: %v", d)
	}
}

func TestFrameReportsWhatIsNoRoCE(t *testing.T) {
	arp := append(make([]byte, 12), 0x08, 0x06)
	if err := Frame(append(arp, make([]byte, 28)...)); err != nil {
		t.Errorf("ARP: %v", err)
	}
	var d *Difference
	if err := error(&Difference{Field: "Packet.BTH.PSN", Wire: "1", Gopacket: "2"}); !errors.As(err, &d) ||
		err.Error() != "Packet.BTH.PSN: wire says 1, gopacket says 2" {
		t.Errorf("%v", err)
	}
}
