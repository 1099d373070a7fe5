package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/theory/jsonpath"

	"github.com/rdmalab/rdmalab/nearest"
)

// Every command that lists something prints the same value in all formats: its JSON is made first, and
// printJSON turns that into YAML, CSV, or what a JSONPath (RFC 9535) selects.

// The formats of the flag -o. A command with a format of its own has only some of them.
const (
	formatTable    = "table"
	formatJSON     = "json"
	formatYAML     = "yaml"
	formatCSV      = "csv"
	formatJSONPath = "jsonpath"
)

// outputFlag adds the flag -o to a command that lists something. wantJSON reads it.
func outputFlag(cmd *cobra.Command) {
	formatFlag(cmd, formatTable, formatJSON, formatYAML, formatCSV, formatJSONPath+"=EXPRESSION")
}

// lineFlag adds the flag -o to a command that prints JSON objects one after the other while it runs.
func lineFlag(cmd *cobra.Command) { formatFlag(cmd, formatTable, formatJSON) }

// listFlags adds the flags of a listing: -o, and --watch, which prints it again and again. It changes RunE.
func listFlags(cmd *cobra.Command) {
	outputFlag(cmd)
	var every time.Duration
	cmd.Flags().DurationVar(&every, "watch", 0, "print it again and again, until interrupted; --watch=500ms sets the interval")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchEvery.String()
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("watch") {
			return once(cmd, args)
		}
		if every < leastWatch {
			return badUse("--watch=%v: want %v or longer", every, leastWatch)
		}
		return watch(cmd, every, func() error { return once(cmd, args) })
	}
}

const (
	watchEvery = time.Second
	leastWatch = 100 * time.Millisecond
)

// watch prints again and again until the command is interrupted. On a terminal each time takes the place of
// the one before; elsewhere an empty line is between them, but not between documents of other formats.
func watch(cmd *cobra.Command, every time.Duration, print func() error) error {
	out := cmd.OutOrStdout()
	between := "\n"
	switch {
	case onTerminalOut(out):
		between = "\x1b[H\x1b[2J"
	case cmd.Flag("output").Value.String() == formatYAML:
		between = "---\n"
	case wantJSON(cmd):
		between = ""
	}
	for first := true; ; first = false {
		if !first || between != "\n" {
			if _, err := io.WriteString(out, between); err != nil {
				return err
			}
		}
		if err := print(); err != nil {
			return err
		}
		if pause(cmd.Context(), every) != nil {
			return nil
		}
	}
}

// formatFlag adds the flag -o with its accepted words. The first word is the default.
func formatFlag(cmd *cobra.Command, words ...string) {
	f := &format{word: words[0], words: words}
	cmd.Flags().VarP(f, "output", "o", "output format: "+f.choices())
	complete(cmd, "output", words...)
}

// formatsMeant are words of other tools for formats.
var formatsMeant = map[string]string{"yml": "yaml", "text": "table", "plain": "table", "tsv": "csv", "js": "json", "jsonl": "json"}

// format is the value of the flag -o.
type format struct {
	word  string
	words []string       // the accepted words
	path  *jsonpath.Path // of jsonpath
}

// choices lists the accepted words: "table, json or csv".
func (f *format) choices() string {
	last := len(f.words) - 1
	return strings.Join(f.words[:last], ", ") + " or " + f.words[last]
}

func (f *format) String() string { return f.word }

func (f *format) Type() string { return "string" }

func (f *format) Set(word string) error {
	name, expression, given := strings.Cut(word, "=")
	known := slices.ContainsFunc(f.words, func(w string) bool {
		w, _, more := strings.Cut(w, "=")
		return w == name && more == given
	})
	switch {
	case name == formatJSONPath && !given && slices.ContainsFunc(f.words, func(w string) bool { return strings.HasPrefix(w, formatJSONPath) }):
		return badUse("jsonpath of what? Write it like -o jsonpath='$.hosts[*].name'")
	case !known && name == "wide":
		return badUse("output format %q is unknown; the table has all columns: leave -o out", word)
	case !known:
		return badUse("output format %q is unknown; %suse %s", word, nearest.Meant(word, f.words, formatsMeant), f.choices())
	case given:
		path, err := parsePath(expression)
		if err != nil {
			return badUse("-o jsonpath=%.60s: %w", expression, err)
		}
		f.path = path
	}
	f.word = name
	return nil
}

// parsePath reads a JSONPath as RFC 9535 has it, and as kubectl has it: in braces, without the root.
func parsePath(text string) (*jsonpath.Path, error) {
	if inner, ok := strings.CutPrefix(text, "{"); ok {
		text = strings.TrimSuffix(inner, "}")
	}
	switch {
	case strings.HasPrefix(text, ".") || strings.HasPrefix(text, "["):
		text = "$" + text
	case !strings.HasPrefix(text, "$"):
		text = "$." + text
	}
	return jsonpath.Parse(text)
}

// formatOf returns the value of the flag -o, or nil if the command has none.
func formatOf(cmd *cobra.Command) *format {
	if flag := cmd.Flag("output"); flag != nil {
		f, _ := flag.Value.(*format)
		return f
	}
	return nil
}

// wantJSON reports whether a command is to print its value and no table: as JSON, or as what printJSON makes
// of it.
func wantJSON(cmd *cobra.Command) bool { return cmd.Flag("output").Value.String() != formatTable }

func show[T any](cmd *cobra.Command, v T, print func(out io.Writer, v T) error) error {
	if wantJSON(cmd) {
		return printJSON(cmd, v)
	}
	return print(hinted(cmd, cmd.OutOrStdout()), v)
}

// printJSON prints a value in the format of the flag -o, or as JSON if that asks for none.
func printJSON(cmd *cobra.Command, v any) error {
	out := cmd.OutOrStdout()
	f := formatOf(cmd)
	if f == nil || f.word == formatJSON || f.word == formatTable {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	switch f.word {
	case formatYAML:
		text, err := yaml.JSONToYAML(data)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	case formatCSV:
		return writeCSV(out, data)
	}
	return selected(out, f.path, data)
}

// selected prints what a path selects of JSON, one value a line; texts are without quotes.
func selected(out io.Writer, path *jsonpath.Path, data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // 64 bits do not fit into a float
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	for _, node := range path.Select(v) {
		text, ok := node.(string)
		if !ok {
			one, err := json.Marshal(node)
			if err != nil {
				return err
			}
			text = string(one)
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}

// writeCSV prints JSON as one table: a row for each entry of the list, or of the first list of objects in
// an object. Columns are the keys in the order in which they come; those of objects inside are joined by a point.
func writeCSV(out io.Writer, data []byte) error {
	var v any
	if err := yaml.UnmarshalWithOptions(data, &v, yaml.UseOrderedMap()); err != nil {
		return err
	}
	rows := rowsOf(v)
	var columns []string
	flat := make([]map[string]string, len(rows))
	for i, row := range rows {
		flat[i] = map[string]string{}
		flatten("", row, func(column, text string) {
			if !slices.Contains(columns, column) {
				columns = append(columns, column)
			}
			flat[i][column] = text
		})
	}
	if len(columns) == 0 {
		return nil
	}
	w := csv.NewWriter(out)
	err := w.Write(columns)
	for _, row := range flat {
		record := make([]string, len(columns))
		for i, column := range columns {
			record[i] = row[column]
		}
		if err == nil {
			err = w.Write(record)
		}
	}
	if w.Flush(); err == nil {
		err = w.Error()
	}
	return err
}

// rowsOf returns the rows of a table of v.
func rowsOf(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case yaml.MapSlice:
		for _, item := range v {
			if list, ok := item.Value.([]any); ok && len(list) > 0 {
				if _, ok := list[0].(yaml.MapSlice); ok {
					return list
				}
			}
		}
	}
	return []any{v}
}

// flatten calls f for each column of a row. A list is one text.
func flatten(prefix string, v any, f func(column, text string)) {
	switch v := v.(type) {
	case yaml.MapSlice:
		for _, item := range v {
			name := fmt.Sprint(item.Key)
			if prefix != "" {
				name = prefix + "." + name
			}
			flatten(name, item.Value, f)
		}
	case []any:
		words := make([]string, len(v))
		for i, one := range v {
			flatten("", one, func(_, text string) { words[i] = strings.TrimSpace(words[i] + " " + text) })
		}
		column(prefix, strings.Join(words, " "), f)
	case nil:
		column(prefix, "", f)
	default:
		column(prefix, fmt.Sprint(v), f)
	}
}

func column(name, text string, f func(column, text string)) {
	if name == "" {
		name = "value"
	}
	f(name, text)
}
