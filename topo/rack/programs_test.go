package rack

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// Our provider serves the NIC unless that of rxe is chosen or ours is not installed; what a shell has
// from another `rdmalab env` does not stay.
func TestOurProviderIsTheDefault(t *testing.T) {
	dir := t.TempDir()
	ours := dir + "/librdmalab"
	for _, c := range []struct {
		dir, provider, drivers string
		want                   []string
	}{
		{dir, "", "", []string{"RDMAV_DRIVERS=" + ours}},
		{dir, uverbs.ProviderOwn, "/x/other", []string{"RDMAV_DRIVERS=" + ours + ":/x/other"}},
		{dir, "", "/another/librdmalab:/x/other", []string{"RDMAV_DRIVERS=" + ours + ":/x/other"}},
		{dir, "", ours, nil},
		{dir, uverbs.ProviderRXE, "", nil},
		{dir, uverbs.ProviderRXE, ours + ":/x/other", []string{"RDMAV_DRIVERS=/x/other"}},
		{dir + "/none", "", "", nil},
	} {
		if got := driversEnv(c.dir, Inherited{Drivers: c.drivers, Provider: c.provider}); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
