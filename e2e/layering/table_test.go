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
	"clover/layout":     {level: 0},
	"sherman/layout":    {level: 0},

	// L1 [P]: mechanisms.
	"softrnic/mem":             {level: 1},
	"softrnic/cost":            {level: 1},
	"softrnic/cq":              {level: 1},
	"softrnic/fault":           {level: 1},
	"softrnic/packetio":        {level: 1},
	"swordbox/rules":           {level: 1},
	"swordbox/record":          {level: 1},
	"softrnic/packetio/pcapng": {level: 1},
	"softrnic/wire/dump":       {level: 1, beside: []string{"softrnic/packetio/pcapng"}},

	"clover/rpc":    {level: 1},
	"sherman/check": {level: 1},
	"sherman/lock":  {level: 1},

	// L2 [P]: machines.
	"softrnic/transport": {level: 2},
	"softrnic/cm":        {level: 2},
	"swordbox/pipeline":  {level: 2},
	"swordbox/conntrack": {level: 2, beside: []string{"swordbox/rewrite"}},
	"swordbox/rewrite":   {level: 2},
	"swordbox/words":     {level: 2, beside: []string{"swordbox/rewrite"}},
	"topo/spec":          {level: 2},

	// L3 [P]: composites.
	"softrnic/engine":          {level: 3},
	"softrnic/binding":         {level: 3, beside: []string{"softrnic/engine"}},
	"swordbox/apps":            {level: 3, beside: []string{"swordbox/apps/forward", "swordbox/apps/serialize", "swordbox/dial", "swordbox/hard", "swordbox/paper", "swordbox/restart", "swordbox/steer", "swordbox/steer/published"}},
	"swordbox/apps/forward":    {level: 3},
	"swordbox/apps/serialize":  {level: 3, beside: []string{"swordbox/dial", "swordbox/hard", "swordbox/mode", "swordbox/paper", "swordbox/restart"}},
	"swordbox/budget":          {level: 3},
	"swordbox/dial":            {level: 3},
	"swordbox/restart":         {level: 3},
	"swordbox/hard":            {level: 3, beside: []string{"swordbox/dial", "swordbox/hard/shared", "swordbox/mode"}},
	"swordbox/hard/shared":     {level: 3},
	"swordbox/mode":            {level: 3},
	"swordbox/paper":           {level: 3, beside: []string{"swordbox/mode"}},
	"swordbox/steer":           {level: 3, beside: []string{"swordbox/mode"}},
	"swordbox/steer/published": {level: 3, beside: []string{"swordbox/dial", "swordbox/mode"}},
	"topo/sim":                 {level: 3},
	"topo/racks":               {level: 3},
	"topo/costs":               {level: 3},

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
	"softrnic/ipc":               {level: 4, beside: []string{"softrnic/clock/real", "softrnic/device", "softrnic/ipc/proto", "softrnic/ipc/ring", "softrnic/rdmacm", "softrnic/spin"}},
	"softrnic/ipc/ring":          {level: 4},
	"softrnic/ipc/proto":         {level: 4, beside: []string{"softrnic/rdmacm"}},
	"softrnic/ipc/serve":         {level: 4, beside: []string{"softrnic/ipc/proto", "softrnic/ipc/ring", "softrnic/rdmacm"}},
	"softrnic/verbstest":         {level: 5},
	"swordbox/switchd":           {level: 4, beside: []string{"softrnic/clock/real", "softrnic/control", "softrnic/packetio/afpacket", "softrnic/packetio/tap", "topo/guests"}},
	"topo/nl":                    {level: 4},
	"topo/guests":                {level: 4},
	"topo/container":             {level: 4, beside: []string{"topo/nl", "softrnic/control"}},
	"topo/rack":                  {level: 4, beside: []string{"topo/container", "topo/guests", "topo/nl", "softrnic/control"}},
	"topo/cni":                   {level: 4, beside: []string{"topo/guests", "topo/nl", "topo/rack", "softrnic/control"}},
	"topo/simrack":               {level: 4, beside: []string{"softrnic/rdmacm"}},
	"topo/scenario/history":      {level: 4},

	// L5: applications, and the daemon that runs them.
	"softrnic/perf":       {level: 5},
	"softrnic/fabric":     {level: 5},
	"softrnic/ipc/remote": {level: 5, beside: []string{"softrnic/perf"}},
	"softrnic/share":      {level: 5},
	"clover/kv":           {level: 5},
	"clover/kvtest":       {level: 5, beside: []string{"clover/kv"}},
	"clover":              {level: 5, beside: []string{"softrnic/fabric", "softrnic/share", "clover/kv", "softrnic/perf"}},
	"sherman/audit":       {level: 5, beside: []string{"sherman"}},
	"sherman":             {level: 5, beside: []string{"softrnic/fabric", "clover/kv", "softrnic/perf"}},
	"clover/meta":         {level: 5, beside: []string{"softrnic/fabric", "softrnic/perf"}},
	"softrnic/peer":       {level: 5},
	"topo/hostd":          {level: 5, beside: []string{"clover", "clover/kv", "clover/meta", "sherman", "sherman/audit", "softrnic/peer", "softrnic/perf"}},
	"topo/calibrate":      {level: 5},
	"topo/storeload":      {level: 5, beside: []string{"clover", "clover/kv", "clover/meta", "softrnic/perf"}},
	"topo/contention":     {level: 5},
	"topo/treeload":       {level: 5, beside: []string{"clover/kv", "sherman", "softrnic/perf"}},
	"topo/doctor":         {level: 5},
	"topo/bundle":         {level: 5},
	"topo/top":            {level: 5},
	"topo/top/live":       {level: 5, beside: []string{"topo/hostd", "topo/top"}},
	"topo/scenario":       {level: 5, beside: []string{"clover", "clover/kv", "clover/meta", "sherman", "sherman/audit", "softrnic/perf"}},

	// L6 and L7: the binary, the suites.
	"softrnic/ipc/example":            {level: 6},
	"compose/examples/goclient":       {level: 6},
	"compose/examples/goclient/hello": {level: 6},
	"topo/cmd/rdmalab":                {level: 6},
	"e2e/report":                      {level: 7},
	"e2e/coverage":                    {level: 7, beside: []string{"e2e/coverage/record"}},
	"e2e/coverage/record":             {level: 0},
	"e2e/fixture":                     {level: 7},
	"e2e/interop/ask":                 {level: 7},
	"e2e/interop/guest":               {level: 7, beside: []string{"e2e/interop/ask"}},
	"e2e/interop/image":               {level: 7},
}
