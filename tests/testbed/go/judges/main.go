// What GitOps tools make of objects: kstatus' own library, a health script of Argo CD in Lua, and Flux' health check
// expressions. Reads a JSON array of objects, writes a JSON array of verdicts in the same order.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
)

type verdict struct {
	Kstatus string `json:"kstatus"`
	Argo    string `json:"argo"`
	Message string `json:"argoMessage"`
	Flux    string `json:"flux"`
}

// In this order Flux asks; the first that holds is the answer.
var order = []struct{ field, answer string }{
	{"inProgress", "InProgress"},
	{"failed", "Failed"},
	{"current", "Current"},
}

func main() {
	script := flag.String("lua", "", "a health script of Argo CD")
	expressions := flag.String("flux", "{}", "health check expressions of Flux, as a JSON object")
	flag.Parse()
	if err := run(*script, *expressions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(script, expressions string) error {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var objects []any
	if err := kubejson.Unmarshal(data, &objects); err != nil { // with whole numbers as int64
		return err
	}
	var asked map[string]string
	if err := json.Unmarshal([]byte(expressions), &asked); err != nil {
		return err
	}
	verdicts := make([]verdict, 0, len(objects))
	for _, each := range objects {
		object, ok := each.(map[string]any)
		if !ok {
			return fmt.Errorf("not an object: %v", each)
		}
		result, err := status.Compute(&unstructured.Unstructured{Object: object})
		if err != nil {
			return err
		}
		argo, message, err := judgeByLua(script, object)
		if err != nil {
			return err
		}
		flux, err := judgeByExpressions(asked, object)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, verdict{string(result.Status), argo, message, flux})
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}

func judgeByLua(script string, object map[string]any) (string, string, error) {
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoFile(script); err != nil {
		return "", "", err
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("%s returns no table", script)
	}
	return health.RawGetString("status").String(), health.RawGetString("message").String(), nil
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch it := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, each := range it {
			table.RawSetString(name, toLua(state, each))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, each := range it {
			table.Append(toLua(state, each))
		}
		return table
	case string:
		return lua.LString(it)
	case int64:
		return lua.LNumber(it)
	case float64:
		return lua.LNumber(it)
	case bool:
		return lua.LBool(it)
	}
	return lua.LNil
}

func judgeByExpressions(asked map[string]string, object map[string]any) (string, error) {
	variables := []cel.EnvOption{}
	known := map[string]any{}
	for _, name := range []string{"apiVersion", "kind", "metadata", "spec", "status"} {
		variables = append(variables, cel.Variable(name, cel.DynType))
		known[name] = object[name]
		if known[name] == nil {
			known[name] = map[string]any{}
		}
	}
	environment, err := cel.NewEnv(variables...)
	if err != nil {
		return "", err
	}
	for _, each := range order {
		ast, issues := environment.Compile(asked[each.field])
		if issues.Err() != nil {
			return "", fmt.Errorf("%s: %w", each.field, issues.Err())
		}
		program, err := environment.Program(ast)
		if err != nil {
			return "", err
		}
		holds, _, err := program.Eval(known)
		if err != nil {
			return "", fmt.Errorf("%s: %w", each.field, err)
		}
		if holds.Value() == true {
			return each.answer, nil
		}
	}
	return "InProgress", nil
}
