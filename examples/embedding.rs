//! The smallest program that embeds Cellmate: a tool, and a cell that calls it.

use cellmate::{Cellmate, Scope, Tool, json};

/// The cell, which a model would write.
const CELL: &str = r#"
const cities = ["Oslo", "Rome", "Lima"]
const forecasts = await Promise.all(cities.map((city) => tools.forecast({ city })))
const warmest = forecasts.sort((a, b) => b.celsius - a.celsius)[0]
text(`${warmest.city} is the warmest`)
return warmest
"#;

fn main() -> cellmate::Result<()> {
    // Must come first: the sandbox's workers are this program, started again.
    cellmate::worker_main();
    cellmate::block_on(async {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let forecast = Tool::new("plugin:weather:forecast", "Returns tomorrow's weather of a city.", schema)
            .reads_only()
            .call(async |call| {
                let city = call.input()["city"].as_str().unwrap_or_default();
                Ok(json!({"city": city, "celsius": city.len() * 4}))
            });
        let host = Cellmate::builder().tool(forecast).build().await?;

        let run = host.run(Scope::agent("traveller").session("holidays"))?;
        // What the program sends to its model, instead of the definitions of all tools.
        println!("{}", serde_json::to_string(run.tools())?);
        // What the model's call `exec({code: CELL})` does.
        println!("{}", serde_json::to_string(&run.exec("call-1", CELL).await)?);
        host.shut_down().await
    })
}
