package experiment

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A flag of dcqcn that would have no effect is refused.
func TestFlagsOfDCQCNWithoutEffect(t *testing.T) {
	for args, want := range map[string]string{
		"--profile mlx":                  "--profile is for a load of your own: add --senders",
		"--rate 100Gbit":                 "add --senders",
		"--senders 2 --profile mlx":      "",
		"--senders 2 --profile nonsense": "nonsense",
		"rack --kmin 1000":               "--kmin is for virtual time: on a rack, its file says it",
		"rack --senders 2":               "",
		"":                               "",
	} {
		rest, rack := strings.CutPrefix(args, "rack ")
		b, at := &dcqcnBody{}, Place{On: OnSim, Quick: true}
		if rack {
			at = Place{On: OnRack, Hosts: 4}
		}
		fs := pflag.NewFlagSet("dcqcn", pflag.ContinueOnError)
		b.Flags(fs)
		if err := fs.Parse(strings.Fields(rest)); err != nil {
			t.Fatal(err)
		}
		if err := b.Check(at); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
