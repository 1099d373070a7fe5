package rackfile

import (
	_ "embed" // for annotated
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// annotated is the source of the package comment, which has the annotated rack file: the schema takes
// the descriptions of keys from it.
//
//go:embed doc.go
var annotated string

// shape is a JSON schema, or a part of one.
type shape map[string]any

// key is a key of a mapping, and the schema of its value.
type key struct {
	name  string
	shape shape
}

// Schema returns the JSON schema of rack files (draft 7, which editors know), for completion and checks
// while a file is written. What it accepts may still be refused by Parse: a schema cannot say that a
// name is free, that a rule's server is a host, or that sizes fit each other. What it refuses, Parse
// refuses, except numbers in quotes and former words for the modes of rules.
//
// No library makes it from the types: these hold resolved values, such as bytes and nanoseconds, and
// not what is written in a file.
func Schema() []byte {
	d := descriptions()
	s := d.object("rack", schemaKeys(d), "hosts")
	s["$schema"] = "http://json-schema.org/draft-07/schema#"
	s["title"] = "rack file of rdmalab"
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("schema of rack files: %v", err)) // it has only maps, lists, texts and numbers
	}
	return append(b, '\n')
}

// Schemas of scalars.

func within(low, high int64) shape { return shape{"type": "integer", "minimum": low, "maximum": high} }

func oneOf[T ~string](words ...T) shape { return shape{"enum": words} }

func pattern(types []string, p string) shape { return shape{"type": types, "pattern": p} }

func listOf(item shape, low, high int) shape {
	s := shape{"type": "array", "items": item, "minItems": low}
	if high > 0 {
		s["maxItems"] = high
	}
	return s
}

const decimal = `^[0-9]*\.?[0-9]+ *`

func sizeShape() shape {
	s := pattern([]string{"string", "integer"}, decimal+`([KMG]iB|[KMGkmg]|B)?$`)
	s["minimum"] = 0
	return s
}

// positiveSize is a size above 0.
func positiveSize(low int64) shape {
	s := sizeShape()
	s["minimum"] = low
	return s
}

func durationShape() shape {
	s := pattern([]string{"string", "integer"}, `^(0|\+?([0-9]*\.?[0-9]+(ns|us|µs|μs|ms|s|m|h))+)$`)
	s["minimum"], s["maximum"] = 0, 0 // of numbers, only 0 needs no unit
	return s
}

func rateShape() shape { return pattern([]string{"string"}, decimal+`([KMGTkmgt]?bit|[KMGTkmg])$`) }

func probabilityShape() shape {
	s := pattern([]string{"string", "number"}, `^[0-9.]+([eE]-?[0-9]+)?%?$`)
	s["exclusiveMinimum"], s["maximum"] = 0, 1
	s["not"] = shape{"pattern": `^[0.]+%?$`}
	return s
}

func nameShape(longest int) shape {
	s := pattern([]string{"string"}, `^[a-z]([a-z0-9-]*[a-z0-9])?$`)
	s["maxLength"] = longest
	return s
}

// hostPattern is a host's name with ranges.
func hostPattern() shape {
	s := pattern([]string{"string"}, `^[a-z]([a-z0-9-]|\[[0-9]{1,6}-[0-9]{1,6}\])*$`)
	s["not"] = shape{"anyOf": []shape{{"enum": reserved}, {"pattern": "-$"}, {"pattern": `^[^\[]{16,}$`}}}
	return s
}

func cpuShape() shape {
	return shape{"anyOf": []shape{within(0, maxCPU), oneOf("auto", "none")}}
}

func subnetShape(p string) shape { return pattern([]string{"string"}, p) }

// schemaKeys lists the keys of a rack file.
func schemaKeys(d described) []key {
	spin := durationShape()
	window := positiveSize(minOneRMAWindow)
	window["maximum"] = maxOneRMAWindow
	group := pattern([]string{"string", "integer"}, groupPattern)
	group["minimum"], group["maximum"] = 1, 1<<32-2
	onerma := []key{{"rtt", notZero(durationShape())}, {"dispatch", notZero(durationShape())}, {"timeout", notZero(durationShape())}, {"window", window}, {"rotate", notZero(durationShape())}}
	return []key{
		{"name", nameShape(maxRackName)},
		{"seed", shape{"type": "integer", "minimum": 0}},
		{"mtu", within(minMTU, maxMTU)},
		{"pathMtu", shape{"enum": []any{1024, 2048, 4096}}},
		{"connect", oneOf(ConnectCM, ConnectTCP)},
		{"cable", oneOf(CableVeth, CableMemory)},
		{"daemons", oneOf(DaemonsSeparate, DaemonsShared)},
		{"slow", within(minSlow, maxSlow)},
		{"cost", nameShape(maxRackName)},
		{"priority", oneOf(PriorityNormal, PriorityRealtime)},
		{"group", group},
		{"onerma", d.object("onerma", onerma)},
		{"congestion", d.object("congestion", congestionKeys(), maxRateKey)},
		{"subnet", subnetShape(`^[0-9]+(\.[0-9]+){3}/[0-9]+$`)},
		{"subnet6", subnetShape(`^[0-9a-fA-F:]+/[0-9]+$`)},
		{"switch", d.object("switch", []key{
			{"program", oneOf(Programs()...)},
			{"queue", within(1, maxQueue)},
			{"spin", spin},
			{"cpu", cpuShape()},
			{"rules", listOf(ruleShape(d), 0, rules.MaxRules)},
			{"ports", d.object("ports", portKeys(), "rate")},
			{"dscp", d.object("dscp", numbered(maxCodePoint, within(0, portqueue.Priorities-1)))},
			{"queues", d.object("queues", numbered(portqueue.Priorities-1, d.object("3", queueShapes(d))))},
			{"watchdog", d.object("watchdog", watchdogKeys())},
		})},
		{"fabric", d.object("fabric", []key{
			{"leaves", within(1, maxLeaves)},
			{"spines", within(0, maxSpines)},
			{"machine", shape{"type": "object", "additionalProperties": nameShape(maxHostName)}},
			{"strict", shape{"type": "boolean"}},
			{"carrier", oneOf(CarrierUDP, CarrierTCP)},
		}, "leaves", "spines")},
		{"machines", listOf(d.object("machines", []key{
			{"name", nameShape(maxHostName)},
			{"ssh", pattern([]string{"string"}, `^ssh://[^/]+$`)},
			{"address", pattern([]string{"string"}, `^[0-9a-fA-F.:]+$`)},
			{"port", within(1024, maxTrunkPort)},
		}, "name", "ssh"), 2, maxMachines)},
		{"hosts", listOf(d.object("hosts", hostKeys(d), "name", "role"), 1, 0)},
		{"devices", listOf(d.object("devices", []key{
			{"port", pattern([]string{"string"}, `^[^/: \t\r\n\v\f]{1,15}$`)},
			{"name", nameShape(maxHostName)},
			{"leaf", nameShape(maxHostName)},
			{"uplink", shape{"type": "boolean"}},
		}, "port"), 0, maxDevices)},
		{"faults", listOf(d.object("faults", faultKeys(d), "link", "kind"), 0, maxFaults)},
	}
}

// notZero is a duration above 0.
func notZero(s shape) shape {
	s["type"] = "string"
	s["not"] = shape{"pattern": `^[0.]+[a-zµμ]*$`}
	return s
}

func hostKeys(d described) []key {
	memory := sizeShape()
	memory["maximum"], memory["multipleOf"] = int64(maxMemory), pageSize
	named := []key{{"name", pattern([]string{"string"}, devicePattern)}, {"mtu", within(minMTU, maxMTU)}, {"numa", within(0, maxNUMA)}}
	return append([]key{
		{"name", hostPattern()},
		{"role", oneOf(Roles()...)},
		{"memory", memory},
		{"cpu", cpuShape()},
		{"leaf", nameShape(maxHostName)},
		{"machine", nameShape(maxHostName)},
		{"nics", shape{"anyOf": []shape{within(1, MaxNICs), listOf(d.object("nics", append(named, nicShapes(d)...)), 1, MaxNICs)}}},
	}, nicShapes(d)...)
}

// nicShapes lists the keys that a host has, and each of its NICs, too.
func nicShapes(d described) []key {
	keys := []key{
		{"spin", durationShape()},
		{"gso", oneOf("on", "off")},
		{"rate", rateShape()},
		{"pkeys", listOf(shape{"type": "integer", "minimum": 1, "maximum": 0xffff, "not": shape{"const": fullMember}}, 1, maxPKeys)},
		{"tos", within(0, 255)},
		{"window", within(1, maxWindow)},
		{"acks", within(1, maxAcks)},
		{"recovery", oneOf(selective.Kinds()...)},
		{"congestion", d.object("congestion", congestionKeys(), maxRateKey)},
		{"lenient", shape{"type": "boolean"}},
		{"distinctKeys", shape{"type": "boolean"}},
		{"quota", d.object("quota", quotaKeys())},
	}
	for _, k := range keys {
		k.shape["description"] = d["hosts"][k.name]
	}
	return keys
}

// numbered lists the keys 0 to last, each with this schema.
func numbered(last int, s shape) (keys []key) {
	for i := range last + 1 {
		keys = append(keys, key{strconv.Itoa(i), s})
	}
	return keys
}

func portKeys() []key {
	return []key{{"rate", rateShape()}, {"buffer", bufferShape(minBuffer)}, {"own", bufferShape(0)}, {"reaction", durationShape()}}
}

// bufferShape is a size of at most the largest buffer, as a number.
func bufferShape(low int64) shape {
	s := positiveSize(low)
	s["maximum"] = int64(portqueue.MaxBuffer)
	return s
}

func queueShapes(d described) []key {
	yes := shape{"type": "boolean"}
	threshold := shape{"anyOf": []shape{bufferShape(1), oneOf(thresholdDynamic)}}
	return []key{
		{"strict", yes},
		{"weight", within(1, portqueue.MaxWeight)},
		{"lossless", yes},
		{"ecn", d.object("ecn", []key{
			{"kmin", bufferShape(0)}, {"kmax", bufferShape(0)}, {"pmax", pattern([]string{"string", "number"}, `^[0-9.]+([eE]-?[0-9]+)?%?$`)}, {"at", oneOf(markAtDequeue, markAtEnqueue)},
		}, "kmin", "kmax", "pmax")},
		{"xoff", threshold},
		{"limit", threshold},
		{"alpha", pattern([]string{"string", "integer"}, `^ *[0-9]+ *(/ *[0-9]+ *)?$`)},
		{"xon", bufferShape(0)},
		{"headroom", shape{"anyOf": []shape{bufferShape(0), oneOf(headroomAuto)}}},
		{"reserve", bufferShape(0)},
	}
}

func watchdogKeys() []key {
	return []key{{"detect", notZero(durationShape())}, {"restore", notZero(durationShape())}, {"action", oneOf(watchdogDrop, watchdogForward)}}
}

func quotaKeys() []key {
	size := positiveSize(1)
	size["maximum"] = int64(maxQuotaBytes)
	return []key{
		{"programs", within(1, maxPrograms)},
		{"pds", within(1, maxPDs)},
		{"mrs", within(1, maxRegions)},
		{"mws", within(1, maxRegions)},
		{"ahs", within(1, maxRegions)},
		{"cqs", within(1, maxQueues)},
		{"srqs", within(1, maxSRQs)},
		{"qps", within(1, maxQueues)},
		{"attachments", within(1, maxQueues)},
		{"ids", within(1, maxQueues)},
		{"joins", within(1, maxQueues)},
		{"events", within(1, maxEvents)},
		{"channels", within(1, maxChannels)},
		{"memory", size},
		{"queueMemory", size},
		{"deviceMemory", size},
		{"shared", size},
		{"reserve", within(1, maxReserve)},
	}
}

func faultKeys(d described) []key {
	return []key{
		{"link", shape{"type": "string"}},
		{"kind", oneOf(fault.Kinds()...)},
		{"dir", oneOf(fault.Up, fault.Down, fault.Both)},
		{"probability", probabilityShape()},
		{"delay", durationShape()},
		{"jitter", durationShape()},
		{"bitsPerSecond", rateShape()},
		{"priority", within(0, portqueue.Priorities-1)},
		{"count", within(1, maxCount)},
		{"for", durationShape()},
		{"seed", shape{"type": "integer", "minimum": 0}},
		{"id", nameShape(maxRackName)},
		{"match", d.object("match", []key{
			{"opcodes", listOf(pattern([]string{"string"}, `^[A-Z_*]`), 0, 0)},
			{"class", oneOf(fault.Classes()...)},
			{"qpn", within(0, max24)},
			{"psn", within(0, max24)},
			{"psnOffset", within(0, maxPSNOffset)},
			{"transmission", within(1, maxCount)},
			{"samePacket", shape{"type": "boolean"}},
		})},
	}
}

// ruleShape is the schema of a rule of the switch. The keys are those of package rules, with its
// descriptions.
func ruleShape(d described) shape {
	words := map[string]shape{
		"action": oneOf(rules.Actions()...),
		"mode":   oneOf(rules.Hardened.String(), rules.Published.String()),
		"steer":  oneOf("read", "write", "both"),
		"slow":   oneOf(rules.Slows()...),
	}
	var keys []key
	for _, f := range rules.Fields() {
		s, ok := words[f.Key]
		if !ok {
			s = shape{"type": []string{"string", "integer"}}
		}
		s["description"] = f.Doc
		keys = append(keys, key{f.Key, s})
	}
	return d.object("rules", keys, "server", "action")
}

// described has the description of each key by its section: the key above it, or "rack".
type described map[string]map[string]string

// object is the schema of a mapping with these keys and no others.
func (d described) object(section string, keys []key, required ...string) shape {
	properties := shape{}
	for _, k := range keys {
		s := shape{}
		for name, v := range k.shape {
			s[name] = v
		}
		if text := d[section][k.name]; text != "" && s["description"] == nil {
			s["description"] = text
		}
		properties[k.name] = s
	}
	s := shape{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// descriptions reads the annotated rack file in the package comment.
func descriptions() described {
	type open struct {
		indent int
		name   string
	}
	out, sections := described{}, []open{{-1, "rack"}}
	for line := range strings.Lines(annotated) {
		body, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		if !ok {
			continue
		}
		code, about, _ := strings.Cut(body, "# ")
		indent := len(code) - len(strings.TrimLeft(code, " -"))
		name, value, _ := strings.Cut(code[indent:], ":")
		for sections[len(sections)-1].indent >= indent {
			sections = sections[:len(sections)-1]
		}
		section := sections[len(sections)-1].name
		if out[section] == nil {
			out[section] = map[string]string{}
		}
		out[section][name] = strings.TrimSpace(about)
		if strings.TrimSpace(value) == "" {
			sections = append(sections, open{indent, name})
		}
	}
	return out
}
