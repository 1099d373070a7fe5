package congestion

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/units"
)

// anyOfThem is for scenarios of the simulator any algorithm.
const anyOfThem = "any"

// Register adds a congestion control that another module has, under a name for the key `algorithm` of rack files:
// small letters, digits and dashes, a letter first, and no word that YAML reads as something else. of makes the
// Controller of one queue pair; p is valid and has the parameters of the NIC, and a Controller that reads it at each
// event applies changes at once. Init functions call Register. It panics if the name is taken or is no name, or if `of`
// is nil. remove removes the algorithm; only tests call it.
func Register(name string, of func(p *Params) Controller) (remove func()) {
	taken := slices.Concat(Algorithms(), Profiles(), Scopes(), []string{anyOfThem, "on", "off", "yes", "no", "y", "n", "true", "false", "null"})
	if slices.Contains(taken, name) || of == nil || !units.IsName(name) || name[0] < 'a' {
		panic(fmt.Sprintf("congestion control %q: the name is taken, is no name, or has no function", name))
	}
	controllers[name] = of
	return func() { delete(controllers, name) }
}
