// Package layering keeps the house in order: which package may import which, and a few rules of tidiness. The
// table is a statement of policy. Do not change it to make a build pass: change it when the design changes, and
// ARCHITECTURE.md with it.
package layering

// room is a package's place in the house.
type room struct {
	// level: a package imports only packages of lower levels …
	level int
	// beside: … and these of its own level.
	beside []string
}

// house lists every package. [P] marks those that are sans-I/O; the linter enforces that.
var house = map[string]room{
	// L0 [P]: vocabulary.
	"softrnic/clock":    {level: 0},
	"softrnic/wire":     {level: 0},
	"softrnic/wire/mad": {level: 0, beside: []string{"softrnic/wire"}},
	"softrnic/metrics":  {level: 0},
	"softrnic/verbs":    {level: 0, beside: []string{"softrnic/clock", "softrnic/wire"}},

	// L1 [P]: mechanisms.
	"softrnic/mem":             {level: 1},
	"softrnic/cq":              {level: 1},
	"softrnic/fault":           {level: 1},
	"softrnic/packetio":        {level: 1},
	"softrnic/packetio/pcapng": {level: 1},
	"softrnic/wire/dump":       {level: 1, beside: []string{"softrnic/packetio/pcapng"}},

	// L2 [P]: machines.
	"softrnic/transport": {level: 2},
	"softrnic/cm":        {level: 2},
	"swordbox/pipeline":  {level: 2},
	"topo/spec":          {level: 2},

	// L3 [P]: composites.
	"softrnic/engine":       {level: 3},
	"softrnic/binding":      {level: 3, beside: []string{"softrnic/engine"}},
	"swordbox/apps/forward": {level: 3},
	"topo/sim":              {level: 3},
	"topo/racks":            {level: 3},

	// L4: edges (goroutines, sockets, privileges).
	"softrnic/clock/real":        {level: 4},
	"softrnic/spin":              {level: 4},
	"softrnic/packetio/memory":   {level: 4},
	"softrnic/packetio/afpacket": {level: 4, beside: []string{"softrnic/spin"}},
	"softrnic/packetio/tap":      {level: 4},
	"softrnic/wire/layers":       {level: 4},
	"softrnic/device":            {level: 4, beside: []string{"softrnic/clock/real", "softrnic/spin"}},
	"softrnic/control":           {level: 4},
	"softrnic/rdmacm":            {level: 4},
	"swordbox/switchd":           {level: 4, beside: []string{"softrnic/clock/real", "softrnic/control", "softrnic/packetio/afpacket", "softrnic/packetio/tap"}},
	"topo/nl":                    {level: 4},
	"topo/rack":                  {level: 4, beside: []string{"topo/nl", "softrnic/control"}},
	"topo/simrack":               {level: 4, beside: []string{"softrnic/rdmacm"}},

	// L5: applications, and the daemon that runs them.
	"softrnic/perf": {level: 5},
	"softrnic/peer": {level: 5},
	"topo/hostd":    {level: 5, beside: []string{"softrnic/peer", "softrnic/perf"}},
	"topo/scenario": {level: 5, beside: []string{"softrnic/perf"}},

	// L6 and L7: the binary, the suites.
	"topo/cmd/rdmalab":  {level: 6},
	"e2e/report":        {level: 7},
	"e2e/fixture":       {level: 7},
	"e2e/interop/ask":   {level: 7},
	"e2e/interop/guest": {level: 7, beside: []string{"e2e/interop/ask"}},
	"e2e/interop/image": {level: 7},
}
